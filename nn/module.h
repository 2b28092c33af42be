// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Module: a part of a model, with named parameters, buffers and child modules.
//
//   class Mlp : public nn::UnaryModule {
//    public:
//     Mlp(int64_t inputs, int64_t hidden, int64_t outputs)
//         : fc1_(RegisterModule("fc1", std::make_shared<nn::Linear>(inputs, hidden))),
//           fc2_(RegisterModule("fc2", std::make_shared<nn::Linear>(hidden, outputs))) {}
//     Tensor Forward(const Tensor& x) override { return (*fc2_)(Relu((*fc1_)(x))); }
//
//    private:
//     std::shared_ptr<nn::Linear> fc1_, fc2_;
//   };
//
//   Mlp model(4, 16, 3);
//   Tensor y = model(x);                                 // runs hooks; Forward() alone does not
//   NamedTensors state = model.StateDict();              // "fc1.weight", "fc1.bias", ...
//
// Names are those of PyTorch's state_dict: path components joined by dots, each module's own
// parameters, then its buffers, then its children, in registration order.
//
// A module with one tensor in and one out derives from UnaryModule and can stand in a Sequential.
// Any other module derives from Module, declares its own Forward, and writes an operator() that
// passes through CallWithHooks.
//
// Parameters and buffers are public data members of type Tensor, registered by address: assigning
// one (`head->weight = embedding->weight`) ties the two, and every function here sees it. Modules
// are therefore neither copied nor moved; they live in shared_ptrs or on the stack.
//
// New modules draw initial values from ThreadGenerators().parameters, in registration order, are
// float32, live on the current device and count as MemoryCategory::kParameter.
//
// Threads: forward passes of one module may run on several threads when no hook writes to it;
// everything else must not run at the same time as anything else on the same module.
#ifndef LOCKSTEP_NN_MODULE_H_
#define LOCKSTEP_NN_MODULE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "lockstep/nn/hooks.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

struct LoadOptions {
  bool strict = true;  // every name on either side must exist on the other
};
struct LoadResult {
  std::vector<std::string> missing;     // in the module, not in the state
  std::vector<std::string> unexpected;  // in the state, not in the module
};

class Module {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // ---- Contents ----
  // Shared parameters and buffers appear once, under the first of their names.
  NamedTensors NamedParameters() const;
  std::vector<Tensor> Parameters() const { return NamedParameters().Tensors(); }
  NamedTensors NamedBuffers() const;
  // This module (with the name "") and all below it, parents first; a shared one appears once.
  std::vector<std::pair<std::string, Module*>> NamedModules();
  // Direct children in registration order, a shared one under each name.
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const {
    return children_;
  }
  // Number of elements of all parameters.
  int64_t ParameterCount() const;

  // ---- State ----
  // All parameters and persistent buffers, shared ones under each name. The tensors share storage
  // with the module and are outside the graph of gradients.
  NamedTensors StateDict() const;
  // The same names with the module's own parameters and buffers.
  NamedTensors StateTensors() const;
  // Copies `state` into the parameters and buffers: values only, converted between floating-point
  // dtypes and between devices; identity, dtype, device and requires_grad stay.
  //
  // Throws InvalidArgument that lists every missing and unexpected name (strict only), every tensor
  // of another shape or kind of dtype, every tensor on the meta device, and every shared parameter
  // that is given different values under its names. Nothing has changed then.
  LoadResult LoadStateDict(const NamedTensors& state, const LoadOptions& options = {});

  // ---- Modes ----
  // Training mode is on at first; dropout acts in it only.
  void Train(bool on = true);
  void Eval() { Train(false); }
  bool training() const { return training_; }
  // Sets requires_grad of every parameter here and below.
  void SetRequiresGrad(bool requires_grad);
  // Calls fn on every module below and then on this one, children first, a shared one once.
  void Apply(absl::FunctionRef<void(Module&)> fn);

  // ---- Placement ----
  // Moves parameters, buffers and gradients; floating-point ones become `dtype`. Identity stays:
  // optimizers and ties hold. On failure (memory, an unsuitable dtype) nothing has changed.
  void To(Device device);
  void To(DType dtype);
  void To(Device device, DType dtype);

  // Drops the gradients of all parameters, or fills them with zeros.
  void ZeroGrad(bool set_to_none = true);

  // ---- Hooks, run by operator() in the order of registration ----
  HookHandle RegisterForwardPreHook(ForwardPreHook hook);
  HookHandle RegisterForwardHook(ForwardHook hook);
  HookHandle RegisterForwardExitHook(ForwardExitHook hook);
  HookHandle RegisterBackwardPreHook(BackwardPreHook hook);
  HookHandle RegisterBackwardHook(BackwardHook hook);
  // `wrapper` stands between operator() with its hooks and Forward(): hooks see one call, whatever
  // the wrapper does. Names and contents of the module stay. An empty one removes it. Throws
  // AlreadyExists when the module has one.
  void SetForwardWrapper(ForwardWrapper wrapper);
  bool has_forward_wrapper() const { return hooks_ != nullptr && hooks_->wrapper != nullptr; }

  // "Linear(3, 5)": the kind and what it was made with. For ToString().
  virtual std::string Description() const { return "Module"; }
  // The tree of modules, one a line.
  std::string ToString() const;

 protected:
  // For constructors. `name` must be new in this module, not empty and without dots; throws
  // InvalidArgument or AlreadyExists. `slot` is a data member and gets the value; an undefined
  // value registers an absent parameter (a bias that is off), which appears nowhere.
  void RegisterParameter(absl::string_view name, Tensor* slot, Tensor value,
                         bool requires_grad = true);
  // A buffer that is not persistent moves with To() and is not part of the state.
  void RegisterBuffer(absl::string_view name, Tensor* slot, Tensor value, bool persistent = true);
  template <typename T>
  std::shared_ptr<T> RegisterModule(absl::string_view name, std::shared_ptr<T> module) {
    AddChild(name, module);
    return module;
  }

  // Runs `forward` between the hooks. The body of every operator():
  //   Tensor operator()(const Tensor& logits, const Tensor& target) {
  //     return CallWithHooks({logits, target}, [this](TensorSpan in) -> TensorList {
  //       return {Forward(in[0], in[1])};
  //     })[0];
  //   }
  // A wrapper may call `forward` after operator() has returned: it captures values and `this` only.
  TensorList CallWithHooks(TensorList inputs, const ForwardFunction& forward);
  bool has_hooks() const { return hooks_ != nullptr; }

 private:
  struct Slot {
    std::string name;
    Tensor* tensor;
    bool buffer = false;
    bool persistent = true;
  };
  // Calls fn(prefix, module) on this module and all below it, parents first, a shared one each time
  // it is met; `prefix` is the path with a dot at its end.
  void Walk(const std::string& prefix,
            absl::FunctionRef<void(const std::string&, const Module&)> fn) const;
  // Every defined slot with its full name, parameters of each module before its buffers.
  std::vector<std::pair<std::string, const Slot*>> AllSlots() const;
  void AddSlot(absl::string_view call, absl::string_view name, Slot slot, Tensor value);
  void AddChild(absl::string_view name, std::shared_ptr<Module> module);
  void CheckName(absl::string_view call, absl::string_view name) const;
  void MoveTo(std::optional<Device> device, std::optional<DType> dtype);
  HookSet& hooks();

  std::vector<Slot> slots_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::shared_ptr<HookSet> hooks_;
  bool training_ = true;
};

// A module with one tensor in and one tensor out.
class UnaryModule : public Module {
 public:
  virtual Tensor Forward(const Tensor& x) = 0;

  Tensor operator()(const Tensor& x) {
    if (!has_hooks()) return Forward(x);
    return CallWithHooks({x}, [this](TensorSpan in) -> TensorList { return {Forward(in[0])}; })[0];
  }
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_MODULE_H_
