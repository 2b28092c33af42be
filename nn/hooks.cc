// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/hooks.h"

#include <string>

#include "lockstep/autograd/custom_function.h"
#include "lockstep/autograd/requires_grad.h"

namespace lockstep::nn {
namespace {

// Hands every tensor on as an alias of its own.
std::vector<Tensor> PassOn(autograd::FunctionContext& context, TensorSpan tensors) {
  context.SetMaterializeGradients(false);
  return {tensors.begin(), tensors.end()};
}

bool AnyRequiresGrad(TensorSpan tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor.defined() && autograd::RequiresGrad(tensor)) return true;
  }
  return false;
}

TensorList ToList(const std::vector<Tensor>& tensors) {
  return TensorList(tensors.begin(), tensors.end());
}

}  // namespace

struct BackwardHookCall::State {
  std::shared_ptr<HookSet> hooks;
  size_t input_count = 0;
  bool inputs_wrapped = false;
  TensorList grad_outputs;  // from the outputs' turn in a backward pass to the inputs' turn

  void RunBackward(TensorList& grad_inputs) {
    const TensorList gradients = std::move(grad_outputs);
    grad_outputs.clear();
    if (hooks->owner == nullptr) return;
    hooks->backward.Run(*hooks->owner, grad_inputs, TensorSpan(gradients));
  }
};

// The end of a module's share in a backward pass.
class BackwardHookCall::InputIdentity : public autograd::CustomFunction {
 public:
  explicit InputIdentity(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::string Name() const override { return "ModuleInputs"; }
  std::vector<Tensor> Forward(autograd::FunctionContext& context, TensorSpan inputs) override {
    return PassOn(context, inputs);
  }
  std::vector<Tensor> Backward(autograd::FunctionContext& context, TensorSpan gradients) override {
    TensorList grad_inputs(gradients.begin(), gradients.end());
    state_->RunBackward(grad_inputs);
    std::vector<Tensor> result(grad_inputs.begin(), grad_inputs.end());
    result.resize(state_->input_count);
    for (size_t i = 0; i < result.size(); ++i) {
      if (!context.Wanted(static_cast<int>(i))) result[i] = Tensor();
    }
    return result;
  }

 private:
  std::shared_ptr<State> state_;
};

// Its beginning.
class BackwardHookCall::OutputIdentity : public autograd::CustomFunction {
 public:
  explicit OutputIdentity(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::string Name() const override { return "ModuleOutputs"; }
  std::vector<Tensor> Forward(autograd::FunctionContext& context, TensorSpan inputs) override {
    return PassOn(context, inputs);
  }
  std::vector<Tensor> Backward(autograd::FunctionContext& context, TensorSpan gradients) override {
    TensorList grad_outputs(gradients.begin(), gradients.end());
    HookSet& hooks = *state_->hooks;
    if (hooks.owner != nullptr) hooks.backward_pre.Run(*hooks.owner, grad_outputs);
    state_->grad_outputs = grad_outputs;
    if (!state_->inputs_wrapped) {
      TensorList grad_inputs(state_->input_count);
      state_->RunBackward(grad_inputs);
    }
    std::vector<Tensor> result(grad_outputs.begin(), grad_outputs.end());
    result.resize(gradients.size());
    for (size_t i = 0; i < result.size(); ++i) {
      if (!context.Wanted(static_cast<int>(i))) result[i] = Tensor();
    }
    return result;
  }

 private:
  std::shared_ptr<State> state_;
};

BackwardHookCall::BackwardHookCall(std::shared_ptr<HookSet> hooks)
    : state_(std::make_shared<State>()) {
  state_->hooks = std::move(hooks);
}

TensorList BackwardHookCall::WrapInputs(const TensorList& inputs) {
  state_->input_count = inputs.size();
  state_->inputs_wrapped = AnyRequiresGrad(inputs);
  if (!state_->inputs_wrapped) return inputs;
  return ToList(autograd::Apply(std::make_shared<InputIdentity>(state_), inputs));
}

TensorList BackwardHookCall::WrapOutputs(const TensorList& outputs) {
  if (!AnyRequiresGrad(outputs)) return outputs;
  return ToList(autograd::Apply(std::make_shared<OutputIdentity>(state_), outputs));
}

}  // namespace lockstep::nn
