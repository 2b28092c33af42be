// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Schedules of learning rates and momenta: a pure function of the step, and the object that applies
// it. The functions are in schedules/.
//
//   optim::AdamW optimizer(model.NamedParameters(), {.lr = 2e-3});
//   optim::Schedule schedule(&optimizer, optim::WarmupCosine({.warmup_steps = 50,
//                                                             .total_steps = 2200,
//                                                             .final_fraction = 0.1}));
//   for (...) {
//     ...
//     optimizer.Step();
//     schedule.Step();
//   }
//
// A schedule gives what stands in for the optimizer's `lr`s and never changes these. What it saves
// is its step alone, so that after loading, the optimizer's state first, last or not at all, the
// rates are those of an uninterrupted run.
#ifndef LOCKSTEP_NN_OPTIM_SCHEDULE_H_
#define LOCKSTEP_NN_OPTIM_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "lockstep/nn/optim/optimizer.h"

namespace lockstep::optim {

// What a schedule does at step 0, 1, 2, ... (the number of optimizer steps done so far).
//
// A function of the step alone is a factor of every group's `lr`, as of PyTorch's LambdaLR:
//
//   optim::Schedule schedule(&optimizer, [](int64_t step) { return std::pow(0.95, step); });
class ScheduleFunction {
 public:
  // The value of a group at a step, given the one of its options.
  using Value = std::function<double(int64_t step, size_t group, double base)>;

  // `momentum` null: momenta are left alone. `group_count`: how many groups the optimizer must
  // have; 0 for any number.
  explicit ScheduleFunction(Value learning_rate, Value momentum = nullptr, size_t group_count = 0)
      : learning_rate_(std::move(learning_rate)),
        momentum_(std::move(momentum)),
        group_count_(group_count) {}

  template <typename Factor>
  requires(!std::is_same_v<Factor, ScheduleFunction> &&
           std::is_invocable_r_v<double, const Factor&, int64_t>)
      ScheduleFunction(Factor factor)  // NOLINT: a factor is a schedule.
      : ScheduleFunction(FromFactor(std::function<double(int64_t)>(std::move(factor)))) {}

  // Whether there is nothing to call.
  bool empty() const { return learning_rate_ == nullptr; }
  size_t group_count() const { return group_count_; }
  bool changes_momentum() const { return momentum_ != nullptr; }

  double LearningRate(int64_t step, size_t group, double base) const {
    return learning_rate_(step, group, base);
  }
  // `base` where the function leaves momenta alone.
  double Momentum(int64_t step, size_t group, double base) const {
    return momentum_ == nullptr ? base : momentum_(step, group, base);
  }
  // The learning rate of group 0 for an `lr` of 1.
  double operator()(int64_t step) const { return LearningRate(step, 0, 1); }

 private:
  static Value FromFactor(std::function<double(int64_t)> factor);

  Value learning_rate_;
  Value momentum_;
  size_t group_count_ = 0;
};

// Applies a ScheduleFunction to one optimizer. The last one made for an optimizer counts: to use
// several, combine them (schedules/combine.h). Not thread-safe.
class Schedule {
 public:
  // `optimizer` must outlive the schedule. Sets the values of step 0. Throws InvalidArgument for a
  // null argument, a function for another number of groups or for momenta that the optimizer does
  // not have, and one that returns a negative or non-finite value.
  Schedule(Optimizer* optimizer, ScheduleFunction function);

  // Counts one optimizer step as done and sets the values of the next. Throws as the constructor,
  // and what the function throws beyond its end; nothing has changed then.
  void Step();
  int64_t step() const { return step_; }

  // {"step": n}, without tensors.
  OptimizerState SaveState() const;
  // Sets the values of the loaded step at once. Throws InvalidArgument for anything but one step
  // that is not negative; nothing has changed then.
  void LoadState(const OptimizerState& state);

 private:
  void MoveTo(int64_t step);

  Optimizer* optimizer_;
  ScheduleFunction function_;
  int64_t step_ = 0;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_SCHEDULE_H_
