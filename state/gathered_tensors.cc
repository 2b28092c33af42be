// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/gathered_tensors.h"

#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "lockstep/base/error.h"
#include "lockstep/state/safetensors_writer.h"

namespace lockstep::state {

void WriteGathered(const std::string& path, const GatheredTensors& gathered, bool writes) {
  std::optional<Error> failure;
  std::unique_ptr<SafetensorsWriter> writer;
  const auto attempt = [&](absl::FunctionRef<void()> work) {
    if (!writes || failure) return;
    try {
      work();
    } catch (const Error& error) {
      failure = error;
      writer.reset();
    }
  };
  attempt([&] { writer = std::make_unique<SafetensorsWriter>(path, gathered.tensors); });
  for (size_t i = 0; i < gathered.tensors.size(); ++i) {
    const Tensor tensor = gathered.gather(i);
    attempt([&] { writer->Append(gathered.tensors[i].name, tensor); });
  }
  attempt([&] { writer->Finish(); });
  if (failure) throw Error(*failure);
}

}  // namespace lockstep::state
