// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/parity/ops/case_runner.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tests/parity/ops/bindings.h"
#include "lockstep/tests/parity/ops/inputs.h"

namespace lockstep::parity {
namespace {

std::vector<Tensor> Gradients(const GoldenCase& test_case, const std::vector<Tensor>& outputs,
                              const std::vector<Tensor>& leaves) {
  std::vector<Tensor> roots, weights, wanted;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!autograd::RequiresGrad(outputs[i])) continue;
    roots.push_back(outputs[i]);
    const Tensor weight = DrawInput("unit", outputs[i].shape(), outputs[i].dtype(), test_case.seed,
                                    100 + static_cast<uint64_t>(i));
    weights.push_back(To(weight, outputs[i].device()));
  }
  for (const Tensor& leaf : leaves) {
    if (autograd::RequiresGrad(leaf)) wanted.push_back(leaf);
  }
  std::vector<Tensor> found(wanted.size());
  if (!roots.empty()) {
    found = autograd::Gradients(roots, wanted, {.grad_outputs = weights, .allow_unused = true});
  }
  std::vector<Tensor> gradients;
  size_t next = 0;
  for (const Tensor& leaf : leaves) {
    gradients.push_back(autograd::RequiresGrad(leaf) ? found[next++] : Tensor());
  }
  return gradients;
}

bool Same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (!IsFloatingPoint(a.dtype())) return a.ToVector<int64_t>() == b.ToVector<int64_t>();
  const std::vector<double> x = a.ToVector<double>(), y = b.ToVector<double>();
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (x[i] != y[i] || std::signbit(x[i]) != std::signbit(y[i])) return false;
  }
  return true;
}

// A copy of `x` whose last dimension has gaps.
Tensor StridedCopy(const Tensor& x) {
  if (x.rank() == 0) return Clone(x);
  const Tensor stored =
      Zeros(StoredShape(x.shape(), "sliced"), {.dtype = x.dtype(), .device = x.device()});
  return CopyInto(ViewAs(stored, x.shape(), "sliced"), x);
}

// Gradients of the floating-point inputs of `call`, run again.
std::vector<Tensor> GradientsAgain(const RowRecorder::Call& call, bool in_place) {
  std::vector<Tensor> inputs, leaves;
  for (const Tensor& input : call.inputs) {
    inputs.push_back(input);
    if (!input.defined() || !IsFloatingPoint(input.dtype())) continue;
    inputs.back() = autograd::SetRequiresGrad(Clone(Detach(input)), true);
    leaves.push_back(inputs.back());
  }
  if (in_place) inputs[0] = Clone(inputs[0]);
  const Tensor y = in_place ? DispatchInPlace(call.op, inputs, call.scalars, *call.attributes)
                            : Dispatch1(call.op, inputs, call.scalars, *call.attributes);
  const Tensor weight = DrawInput("unit", y.shape(), y.dtype(), /*seed=*/1, /*stream=*/0);
  return autograd::Gradients({y}, leaves, {.grad_outputs = {weight}, .allow_unused = true});
}

}  // namespace

bool HasGradients(const GoldenResult& golden) {
  for (const auto& gradient : golden.gradients) {
    if (gradient.has_value()) return true;
  }
  return false;
}

CaseRun RunCase(const GoldenCase& test_case, const GoldenResult& golden) {
  const auto binding = Bindings().find(test_case.op);
  if (binding == Bindings().end()) {
    throw NotFoundError(absl::StrCat("no binding ", test_case.op));
  }
  const bool differentiate = HasGradients(golden);
  std::vector<Tensor> leaves, inputs;
  for (const InputSpec& spec : test_case.inputs) {
    const DType dtype = spec.dtype.value_or(golden.dtype);
    leaves.push_back(DrawInput(spec.profile, StoredShape(spec.shape, spec.layout), dtype,
                               test_case.seed, static_cast<uint64_t>(leaves.size())));
    if (differentiate && IsFloatingPoint(dtype)) autograd::SetRequiresGrad(leaves.back(), true);
    inputs.push_back(ViewAs(leaves.back(), spec.shape, spec.layout));
  }
  CaseRun run;
  RowRecorder recorder;
  run.outputs = binding->second(inputs, test_case.args);
  if (differentiate) run.gradients = Gradients(test_case, run.outputs, leaves);
  run.calls = recorder.calls();
  return run;
}

std::string InPlaceDifference(const RowRecorder::Call& call) {
  if (call.outputs.size() != 1 || call.inputs.empty()) return "";
  const Tensor& expected = call.outputs[0];
  const Tensor& first = call.inputs[0];
  if (expected.dtype() != first.dtype() || expected.shape() != first.shape()) return "";
  for (const bool strided : {false, true}) {
    autograd::NoGradScope no_grad;
    std::vector<Tensor> inputs = call.inputs;
    inputs[0] = strided ? StridedCopy(first) : Clone(first);
    const Tensor result = DispatchInPlace(call.op, inputs, call.scalars, *call.attributes);
    if (!result.IsSame(inputs[0])) return "the result is another tensor";
    if (!Same(result, expected)) return strided ? "differs when strided" : "differs";
  }
  if (!IsFloatingPoint(expected.dtype()) || !GetOpInfo(call.op).differentiable) return "";
  const std::vector<Tensor> apart = GradientsAgain(call, /*in_place=*/false);
  const std::vector<Tensor> in_place = GradientsAgain(call, /*in_place=*/true);
  for (size_t i = 0; i < apart.size(); ++i) {
    const bool both = apart[i].defined() && in_place[i].defined();
    const bool same =
        both ? Same(apart[i], in_place[i]) : apart[i].defined() == in_place[i].defined();
    if (!same) return absl::StrCat("has another gradient of input ", i);
  }
  return "";
}

}  // namespace lockstep::parity
