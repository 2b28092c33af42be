// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Optimizer: changes parameters by their gradients.
//
//   optim::AdamW optimizer(model.NamedParameters(), {.lr = 2e-3});
//   for (...) {
//     optimizer.ZeroGrad();
//     autograd::Backward(Loss(model, batch));
//     optimizer.Step();
//   }
//
// Parameters come with names, in groups with options of their own (sgd.h, adam.h, adamw.h,
// rmsprop.h, adagrad.h). Options may be changed between steps and count from the next one on.
//
// What an optimizer saves is what it has learnt (moments, step counts), by parameter name: the
// order of parameters and their division into groups may differ when it is loaded. Options are
// configuration and are not part of it, and what a schedule (schedule.h) puts in place of learning
// rates and momenta belongs to the schedule: states may be loaded in any order.
//
// Not thread-safe. The parameters' tensors are shared, not copied.
#ifndef LOCKSTEP_NN_OPTIM_OPTIMIZER_H_
#define LOCKSTEP_NN_OPTIM_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::optim {

// The state of an optimizer or a schedule, ready to be written to a file.
struct OptimizerState {
  NamedTensors tensors;                    // "<parameter>.exp_avg", ...
  std::map<std::string, int64_t> numbers;  // "<parameter>.step", ...
};

// A name of an optimizer's state in its parts, of which the kind has no dots: of "wte.weight.step",
// "wte.weight" and "step". A name without dots is all parameter, and its kind is "".
struct StateName {
  std::string parameter;
  std::string kind;
};
StateName SplitStateName(absl::string_view name);

// Parameters that share options.
template <typename Options>
struct ParameterGroup {
  NamedTensors parameters;
  Options options;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient; the others, and their state, stay as they are.
  // Throws InvalidArgument for options out of range, before anything changes, and
  // FailedPrecondition for a parameter that was moved to another device after its state was made:
  // LoadState(SaveState()) brings the state after it.
  virtual void Step() = 0;

  // The same for those of `parameters` that are this optimizer's, whatever gradients others have:
  // for updating some as soon as their gradients are complete.
  virtual void StepOnly(TensorSpan parameters);

  // Drops the gradients, or fills them with zeros.
  void ZeroGrad(bool set_to_none = true);

  // All parameters, group by group.
  const NamedTensors& parameters() const { return parameters_; }

  virtual size_t GroupCount() const = 0;

  // Whether each element's update depends on that element, its gradient and its state only, so that
  // pieces of a parameter may be updated apart from each other (on several ranks). One that takes
  // norms of whole parameters is not.
  virtual bool is_elementwise() const { return false; }

  // What the options say, and what the next step uses: that, or what a rule makes of it. Throw
  // OutOfRange. "Momentum" is `momentum` of SGD and RMSprop and `beta1` of Adam and AdamW; there is
  // none in Adagrad.
  virtual double BaseLearningRate(size_t group = 0) const = 0;
  virtual std::optional<double> BaseMomentum(size_t group = 0) const = 0;
  double LearningRate(size_t group = 0) const;
  std::optional<double> Momentum(size_t group = 0) const;

  // What stands in for a group's value, given that value. Set by schedules; null leaves the values
  // as they are. SetMomentumRule throws InvalidArgument where there is no momentum.
  using GroupRule = std::function<double(size_t group, double value)>;
  void SetLearningRateRule(GroupRule rule);
  void SetMomentumRule(GroupRule rule);
  // The rule that multiplies every group's learning rate. Throws InvalidArgument for a factor that
  // is negative or not finite.
  void SetLearningRateFactor(double factor);

  // The tensors share storage with the optimizer: write or Clone() them before the next step.
  virtual OptimizerState SaveState() const;
  // Copies `state`; parameters that it does not name start anew. State that the present options do
  // not use (momentum_buffer of RMSprop without momentum) is kept. Throws InvalidArgument that
  // lists every name of an unknown parameter or of another kind of optimizer, every parameter with
  // an incomplete state and every tensor of another shape; nothing has changed then.
  virtual void LoadState(const OptimizerState& state);

 protected:
  // One parameter with its state. The tensors of `state` have the kinds of state_kinds(), are made
  // when first needed (undefined before), and are float32 for 16-bit parameters: sums in 16 bits
  // stall.
  struct Slot {
    std::string name;
    Tensor parameter;
    size_t group = 0;
    std::vector<Tensor> state;
    int64_t step = 0;  // steps taken
  };

  // One call of a list op: parameters of one group on one device.
  struct Batch {
    size_t group = 0;
    int64_t step = 0;  // steps taken before this one
    std::vector<Slot*> slots;
    std::vector<Tensor> parameters;
    std::vector<Tensor> gradients;
    // The state tensors of one kind, made with every element `initial` where there are none yet.
    std::vector<Tensor> State(size_t kind, double initial = 0) const;
  };

  // `state_kinds`: names of the state tensors of a parameter, such as "exp_avg". `call` begins
  // errors.
  Optimizer(absl::string_view call, std::vector<std::string> state_kinds);
  // Adds a group's parameters. Throws InvalidArgument for one that is not a floating-point leaf,
  // and for a name or a tensor that was given before.
  void AddParameters(const NamedTensors& parameters, size_t group);
  // Throws InvalidArgument when no group has a parameter.
  void CheckNotEmpty() const;

  // What the next step has to update, in the order of groups and parameters; makes no state. The
  // parameters of a batch have taken the same number of steps, or only agree in whether they have
  // taken any (`same_step` false).
  std::vector<Batch> Batches(bool same_step);
  // Whether a parameter that has taken steps has state of this kind under the present options.
  virtual bool NeedsState(size_t kind, size_t group) const;

  const std::string& call() const { return call_; }

 private:
  static Tensor NewState(const Tensor& parameter, double initial = 0);
  // Throws FailedPrecondition where a parameter has left its state behind.
  void CheckStateDevice(const Slot& slot) const;
  // Adds a line for each name of `state` that no parameter here has.
  void ListUnknown(const OptimizerState& state, std::vector<std::string>& wrong) const;

  std::string call_;
  std::vector<std::string> state_kinds_;
  std::vector<Slot> slots_;
  NamedTensors parameters_;
  GroupRule learning_rate_rule_;
  GroupRule momentum_rule_;
  std::optional<TensorSpan> only_;  // during StepOnly()
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_OPTIMIZER_H_
