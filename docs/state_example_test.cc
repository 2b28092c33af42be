// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of state.md.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "lockstep/docs/snippets.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/state/training_state.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

TEST(StateExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/state.md", "docs/state_example_test.cc");
}

TEST(StateExample, Weights) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  models::Mlp model({.sizes = {2, 3, 1}});
  state::WriteSafetensors(folder + "/model.safetensors", model.StateDict(), {{"format", "pt"}});

  state::SafetensorsFile file = state::SafetensorsFile::Open(folder + "/model.safetensors");
  model.LoadStateDict(file.LoadAll());
  EXPECT_EQ(file.entries().size(), 4u);
}

TEST(StateExample, Training) {
  const std::string root = std::string(std::getenv("TEST_TMPDIR")) + "/run";
  models::Mlp model({.sizes = {2, 3, 1}});
  optim::AdamW optimizer(model.NamedParameters());

  state::TrainingState state;
  state.step = 500;
  state.model = model.StateDict();
  state.optimizer = optimizer.SaveState().tensors;
  state.Set("data.batch", int64_t{500});
  state::SaveRandomState(ThreadGenerators(), state);
  state::SaveTrainingState(root, state, {.keep = 3});

  state::LoadedState latest = state::LoadLatestTrainingState(root);
  model.LoadStateDict(latest.state.model);
  ThreadGenerators() = state::LoadRandomState(latest.state, /*data_parallel_rank=*/0);
  EXPECT_EQ(latest.state.Integer("data.batch"), 500);
}

}  // namespace
}  // namespace lockstep
