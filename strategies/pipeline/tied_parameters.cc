// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/tied_parameters.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::pipeline {
namespace {

void CheckAlike(const TiedCopy& first, const TiedCopy& copy, const Tensor& value) {
  const Tensor& own = copy.parameter;
  if (own.shape() == value.shape() && own.dtype() == value.dtype()) return;
  throw InvalidArgumentError(
      absl::StrCat("pipeline: \"", copy.name, "\" of stage ", copy.stage, " is ", own.DebugString(),
                   " and is tied to \"", first.name, "\" of stage ", first.stage, ", which is ",
                   value.DebugString(), "; copies have one shape and dtype"));
}

}  // namespace

TiedParameters::TiedParameters(std::vector<std::vector<TiedCopy>> groups, int first_channel)
    : groups_(std::move(groups)), first_channel_(first_channel) {
  for (const std::vector<TiedCopy>& group : groups_) {
    for (const TiedCopy& copy : group) {
      const Tensor& first = group[0].parameter;
      if (copy.parameter.defined() && first.defined()) CheckAlike(group[0], copy, first);
    }
  }
}

int TiedParameters::channel_count() const {
  int copies = 0;
  for (const auto& group : groups_) copies += static_cast<int>(group.size());
  return 2 * copies;
}

bool TiedParameters::Contains(int stage) const {
  for (const auto& group : groups_) {
    for (const TiedCopy& copy : group) {
      if (copy.stage == stage) return true;
    }
  }
  return false;
}

bool TiedParameters::IsLaterCopy(const Tensor& parameter) const {
  for (const auto& group : groups_) {
    for (size_t i = 1; i < group.size(); ++i) {
      if (group[i].parameter.defined() && group[i].parameter.IsSame(parameter)) return true;
    }
  }
  return false;
}

template <typename From, typename Combine, typename Into>
void TiedParameters::Exchange(Transport* transport, From from, Combine combine, Into into) const {
  const autograd::NoGradScope no_grad;
  int channel = first_channel_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<TiedCopy>& group = groups_[g];
    const TiedCopy& first = group[0];
    const bool is_root = first.parameter.defined();
    const int channels = channel;
    channel += 2 * static_cast<int>(group.size());
    const auto up = [&](size_t i, int peer) {
      return Address{channels + 2 * static_cast<int>(i), 0, peer};
    };
    const auto down = [&](size_t i, int peer) {
      return Address{channels + 2 * static_cast<int>(i) + 1, 0, peer};
    };
    if (is_root) {
      std::vector<Tensor> values;
      for (size_t i = 0; i < group.size(); ++i) {
        if (!group[i].parameter.defined()) transport->Expect(up(i, group[i].rank));
      }
      for (size_t i = 0; i < group.size(); ++i) {
        Tensor value = group[i].parameter.defined()
                           ? from(g, i)
                           : transport->Take(up(i, group[i].rank)).tensors[0];
        if (value.defined()) value = To(value, first.parameter.device());
        values.push_back(std::move(value));
      }
      const Tensor result = combine(values);
      for (size_t i = 0; i < group.size(); ++i) {
        if (group[i].parameter.defined()) {
          into(g, i, result);
        } else {
          transport->Send(down(i, group[i].rank), {{result}, {false}});
        }
      }
      continue;
    }
    for (size_t i = 0; i < group.size(); ++i) {
      if (!group[i].parameter.defined()) continue;
      transport->Send(up(i, first.rank), {{from(g, i)}, {false}});
      transport->Expect(down(i, first.rank));
    }
    for (size_t i = 0; i < group.size(); ++i) {
      if (!group[i].parameter.defined()) continue;
      into(g, i, transport->Take(down(i, first.rank)).tensors[0]);
    }
  }
}

void TiedParameters::MakeEqual(Transport* transport) const {
  Exchange(
      transport,
      [&](size_t g, size_t i) { return i == 0 ? Detach(groups_[g][i].parameter) : Tensor(); },
      [](const std::vector<Tensor>& values) { return values[0]; },
      [&](size_t g, size_t i, const Tensor& value) {
        if (i == 0) return;
        const TiedCopy& copy = groups_[g][i];
        CheckAlike(groups_[g][0], copy, value);
        CopyInto(copy.parameter, To(value, copy.parameter.device()));
      });
}

void TiedParameters::PutAside() {
  aside_.clear();
  for (const auto& group : groups_) {
    std::vector<Tensor>& gradients = aside_.emplace_back();
    for (const TiedCopy& copy : group) {
      gradients.push_back(copy.parameter.defined() ? autograd::Grad(copy.parameter) : Tensor());
      if (copy.parameter.defined()) autograd::SetGrad(copy.parameter, {});
    }
  }
}

void TiedParameters::SumGradients(Transport* transport) {
  Exchange(
      transport, [&](size_t g, size_t i) { return autograd::Grad(groups_[g][i].parameter); },
      [](const std::vector<Tensor>& gradients) {
        Tensor sum;
        for (const Tensor& gradient : gradients) {
          if (!gradient.defined()) continue;
          sum = sum.defined() ? Add(sum, gradient) : gradient;
        }
        return sum;
      },
      [&](size_t g, size_t i, const Tensor& sum) {
        const Tensor& parameter = groups_[g][i].parameter;
        const Tensor& earlier = aside_[g][i];
        if (!sum.defined()) {
          autograd::SetGrad(parameter, earlier);
        } else if (earlier.defined()) {
          AddInPlace(earlier, To(sum, parameter.device()));
          autograd::SetGrad(parameter, earlier);
        } else {
          // Each copy's own: clipping and unscaling write to it.
          autograd::SetGrad(parameter, Clone(To(sum, parameter.device())));
        }
      });
  aside_.clear();
}

void TiedParameters::Restore() {
  for (size_t g = 0; g < aside_.size(); ++g) {
    for (size_t i = 0; i < groups_[g].size(); ++i) {
      const Tensor& parameter = groups_[g][i].parameter;
      if (parameter.defined()) autograd::SetGrad(parameter, aside_[g][i]);
    }
  }
  aside_.clear();
}

}  // namespace lockstep::pipeline
