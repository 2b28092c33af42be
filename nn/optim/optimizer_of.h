// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// OptimizerOf<Options>: what the optimizers share, which differ in their options and in Step().
//
//   class Adagrad : public OptimizerOf<AdagradOptions> { ... };
//
// `Options` has a field `lr`, and `momentum` or `beta1` where there is such a thing.
#ifndef LOCKSTEP_NN_OPTIM_OPTIMIZER_OF_H_
#define LOCKSTEP_NN_OPTIM_OPTIMIZER_OF_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/optimizer.h"

namespace lockstep::optim {

template <typename Options>
class OptimizerOf : public Optimizer {
 public:
  // The options of a group, to be read or changed. Throw OutOfRange.
  Options& options(size_t group = 0) {
    CheckGroup(group);
    return options_[group];
  }
  const Options& options(size_t group = 0) const {
    CheckGroup(group);
    return options_[group];
  }

  size_t GroupCount() const override { return options_.size(); }
  double BaseLearningRate(size_t group = 0) const override { return options(group).lr; }
  std::optional<double> BaseMomentum(size_t group = 0) const override {
    if constexpr (requires(Options o) { o.momentum; }) {
      return options(group).momentum;
    } else if constexpr (requires(Options o) { o.beta1; }) {
      return options(group).beta1;
    } else {
      return std::nullopt;
    }
  }

 protected:
  using Groups = std::vector<ParameterGroup<Options>>;

  // `call` and `state_kinds` as in Optimizer. `validate` throws InvalidArgument for options out of
  // range; so does this for no parameters, and for ones that repeat or are not floating-point
  // leaves.
  OptimizerOf(absl::string_view call, std::vector<std::string> state_kinds, const Groups& groups,
              void (*validate)(const Options&))
      : Optimizer(call, std::move(state_kinds)), validate_(validate) {
    for (const ParameterGroup<Options>& group : groups) {
      validate_(group.options);
      AddParameters(group.parameters, options_.size());
      options_.push_back(group.options);
    }
    CheckNotEmpty();
  }

  // The options of every group with the learning rate and momentum that the next step uses. Throws
  // InvalidArgument for ones out of range.
  std::vector<Options> CurrentOptions() const {
    std::vector<Options> current = options_;
    for (size_t group = 0; group < current.size(); ++group) {
      validate_(options_[group]);
      current[group].lr = LearningRate(group);
      if constexpr (requires(Options o) { o.momentum; }) {
        current[group].momentum = *Momentum(group);
      } else if constexpr (requires(Options o) { o.beta1; }) {
        current[group].beta1 = *Momentum(group);
      }
      validate_(current[group]);
    }
    return current;
  }

 private:
  void CheckGroup(size_t group) const {
    if (group >= options_.size()) {
      throw OutOfRangeError(absl::StrCat(call(), ": group ", group, " of ", options_.size()));
    }
  }

  void (*validate_)(const Options&);
  std::vector<Options> options_;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_OPTIMIZER_OF_H_
