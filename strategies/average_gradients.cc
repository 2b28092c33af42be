// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/average_gradients.h"

#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/collective.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/creation.h"

namespace lockstep::strategies {
namespace {

// Whether any rank has the gradient of each parameter.
std::vector<uint8_t> AnywherePresent(const std::vector<Tensor>& parameters,
                                     comm::Communicator& group) {
  std::vector<uint8_t> present;
  for (const Tensor& parameter : parameters) {
    present.push_back(autograd::Grad(parameter).defined() ? 1 : 0);
  }
  const auto count = static_cast<int64_t>(present.size());
  const Tensor any = FromVector<uint8_t>(present, {count}, {.device = Cpu()});
  group.AllReduce(any, {.op = comm::ReduceOp::kMax}).Wait();
  return any.ToVector<uint8_t>();
}

// Reduces lists of neighbours of one dtype and device, each as long as the bytes allow.
class Buckets {
 public:
  Buckets(comm::Communicator& group, int64_t bytes) : group_(group), most_bytes_(bytes) {}

  void Add(const Tensor& gradient) {
    const bool fits = !list_.empty() && gradient.dtype() == list_[0].dtype() &&
                      gradient.device() == list_[0].device() &&
                      bytes_ + gradient.bytes() <= most_bytes_;
    if (!fits) Issue();
    list_.push_back(gradient);
    bytes_ += gradient.bytes();
  }

  void Finish() {
    Issue();
    for (comm::Work& work : works_) work.Wait();
  }

 private:
  void Issue() {
    if (list_.empty()) return;
    works_.push_back(group_.AllReduceCoalesced(list_, {.op = comm::ReduceOp::kAverage}));
    list_.clear();
    bytes_ = 0;
  }

  comm::Communicator& group_;
  const int64_t most_bytes_;
  std::vector<Tensor> list_;
  int64_t bytes_ = 0;
  std::vector<comm::Work> works_;
};

}  // namespace

void AverageGradients(TensorSpan parameters, comm::Communicator& group,
                      const AverageGradientsOptions& options) {
  if (options.bucket_bytes < 1) {
    throw InvalidArgumentError(absl::StrCat("AverageGradients: bucket_bytes is ",
                                            options.bucket_bytes, "; it is at least 1"));
  }
  if (group.size() == 1) return;
  const autograd::NoGradScope no_grad;
  std::vector<Tensor> trained;
  absl::flat_hash_set<const TensorImpl*> seen;
  for (const Tensor& parameter : parameters) {
    const bool is_new = seen.insert(&parameter.impl()).second;
    if (is_new && autograd::RequiresGrad(parameter)) trained.push_back(parameter);
  }
  if (trained.empty()) return;
  const std::vector<uint8_t> present = AnywherePresent(trained, group);
  const CategoryScope category(MemoryCategory::kGradient);
  Buckets buckets(group, options.bucket_bytes);
  for (size_t i = 0; i < trained.size(); ++i) {
    if (present[i] == 0) continue;
    if (!autograd::Grad(trained[i]).defined()) {
      autograd::SetGrad(trained[i], ZerosLike(trained[i]));
    }
    buckets.Add(autograd::Grad(trained[i]));
  }
  buckets.Finish();
}

}  // namespace lockstep::strategies
