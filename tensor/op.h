// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The op table: facts about every op, stated once in op_list.inc, and ops added by other programs.
//
//   const OpInfo& info = GetOpInfo(OpId::kMatMul);
//   info.kind == OpKind::kContraction; info.amp(DeviceType::kCpu) == AmpClass::kLowPrecision;
#ifndef LOCKSTEP_TENSOR_OP_H_
#define LOCKSTEP_TENSOR_OP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/tensor/attributes.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Built-in and registered ops together; tables by op have this size, so that a lookup is one load.
inline constexpr int kMaximumOpCount = 1024;

// Built-in ops; RegisterOp hands out larger values.
enum class OpId : uint16_t {
#define LOCKSTEP_OP(name, ...) k##name,
#include "lockstep/tensor/op_list.inc"
#undef LOCKSTEP_OP
  kBuiltinCount
};

enum class OpKind : uint8_t {
  kCreation,
  kElementwise,
  kBroadcasting,
  kReduction,
  kContraction,
  kNormalization,
  kIndexing,
  kView,
  kCopy,
  kRandom,
  kUpdate
};

// What autocast does with an op's floating-point inputs.
enum class AmpClass : uint8_t {
  kUntouched,  // runs in the dtype it is given
  kLowPrecision,
  kFp32,
  kFp32IfUnset,  // float32 when the caller names no dtype
  kPromote,      // the widest input dtype
  kRefused       // unsafe under autocast; the error names the alternative
};

enum class CostRule : uint8_t { kNone, kElementwise, kCopy, kMatMul, kAttention };

using Scalars = absl::InlinedVector<Scalar, 5>;

// One call, as layers and kernels see it. Refers to the caller's objects; valid during the call.
struct OpCall {
  OpId op;
  TensorSpan inputs;  // an optional input that is absent is an undefined Tensor
  const Scalars& scalars;
  const Attributes& attributes;
  bool in_place = false;  // output 0 is inputs[0]
};

// An output before it exists. For views, strides and offset are those into the input's storage.
struct TensorSpec {
  Shape shape;
  DType dtype = DType::kFloat32;
  Strides strides;     // empty: row-major (a zero-dimensional view has none either)
  int64_t offset = 0;  // views only
  Device device;       // set by dispatch; a rule overrides it for creation and device copies
};
using SpecList = absl::InlinedVector<TensorSpec, 2>;

// Appends one spec an output, from shapes, dtypes, strides and attributes only; never reads data.
// Throws InvalidArgument naming the op, with shapes and remedy, on operands that do not fit.
using ShapeRule = void (*)(const OpCall& call, SpecList& outputs);

struct OpInfo {
  struct Input {
    std::string name;
    bool optional = false;
    bool list = false;
  };
  std::string name;
  std::vector<Input> inputs;
  std::vector<std::string> outputs;
  bool output_list = false;
  OpKind kind = OpKind::kElementwise;
  int view_of = -1;
  uint32_t mutates = 0;
  AmpClass amp_cpu = AmpClass::kUntouched;
  AmpClass amp_cuda = AmpClass::kUntouched;
  bool differentiable = false;
  CostRule cost = CostRule::kNone;
  std::string doc;
  ShapeRule shape_rule = nullptr;

  AmpClass amp(DeviceType type) const { return type == DeviceType::kCuda ? amp_cuda : amp_cpu; }
  bool has_lists = false;  // derived
};

// Parses "x, weight?, grads*" into info.inputs. For makers of OpInfo.
std::vector<OpInfo::Input> ParseInputs(absl::string_view text);

// Whether `call`, of the row `info`, writes into its input `index`.
bool WritesInput(const OpInfo& info, const OpCall& call, size_t index);

// Adds an op of another program; unknown to the compiler means opaque. Thread-safe. Throws
// AlreadyExists for a name in use, InvalidArgument for an incomplete row, ResourceExhausted when
// there are kMaximumOpCount.
OpId RegisterOp(OpInfo info);

// Throws OutOfRange for an id that was never handed out.
const OpInfo& GetOpInfo(OpId op);
// Throws NotFound.
OpId FindOp(absl::string_view name);
// Built-in and registered.
int OpCount();

// Floating-point operations and bytes moved by one call with outputs `outputs`.
struct OpCost {
  double flops = 0;
  int64_t bytes = 0;
};
OpCost EstimateCost(const OpCall& call, const SpecList& outputs);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OP_H_
