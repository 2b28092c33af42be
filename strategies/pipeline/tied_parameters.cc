// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/tied_parameters.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::pipeline {
namespace {

using Tensors = std::vector<Tensor>;

// `value` is the first copy's, of which its rank has the elements from `first_element` on.
void CheckAlike(const TiedCopy& first, const TiedCopy& copy, const Tensor& value,
                int64_t first_element) {
  const Tensor& own = copy.parameter;
  const auto text = [](const Tensor& tensor, int64_t begin) {
    return begin == 0 ? tensor.DebugString()
                      : absl::StrCat(tensor.DebugString(), " from element ", begin, " on");
  };
  if (own.shape() == value.shape() && own.dtype() == value.dtype() &&
      (copy.first_element == first_element || own.numel() == 0)) {
    return;
  }
  throw InvalidArgumentError(absl::StrCat(
      "pipeline: \"", copy.name, "\" of stage ", copy.stage, " is ", text(own, copy.first_element),
      " and is tied to \"", first.name, "\" of stage ", first.stage, ", which is ",
      text(value, first_element),
      "; copies have one shape and dtype, and sharded ones the same elements on a rank "
      "(ShardedStageOptions::tied)"));
}

Letter LetterOf(const Tensors& tensors) {
  return {tensors, std::vector<bool>(tensors.size(), false)};
}

}  // namespace

TiedParameters::TiedParameters(std::vector<std::vector<TiedCopy>> groups, int first_channel)
    : groups_(std::move(groups)), first_channel_(first_channel) {
  for (const std::vector<TiedCopy>& group : groups_) {
    for (const TiedCopy& copy : group) {
      const TiedCopy& first = group[0];
      if (copy.parameter.defined() && first.parameter.defined()) {
        CheckAlike(first, copy, first.parameter, first.first_element);
      }
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
      std::vector<Tensors> values;
      for (size_t i = 0; i < group.size(); ++i) {
        if (!group[i].parameter.defined()) transport->Expect(up(i, group[i].rank));
      }
      for (size_t i = 0; i < group.size(); ++i) {
        values.push_back(group[i].parameter.defined()
                             ? from(g, i)
                             : transport->Take(up(i, group[i].rank)).tensors);
        for (Tensor& value : values.back()) {
          if (value.defined()) value = To(value, first.parameter.device());
        }
      }
      const Tensors result = combine(values);
      for (size_t i = 0; i < group.size(); ++i) {
        if (group[i].parameter.defined()) {
          into(g, i, result);
        } else {
          transport->Send(down(i, group[i].rank), LetterOf(result));
        }
      }
      continue;
    }
    for (size_t i = 0; i < group.size(); ++i) {
      if (!group[i].parameter.defined()) continue;
      transport->Send(up(i, first.rank), LetterOf(from(g, i)));
      transport->Expect(down(i, first.rank));
    }
    for (size_t i = 0; i < group.size(); ++i) {
      if (!group[i].parameter.defined()) continue;
      into(g, i, transport->Take(down(i, first.rank)).tensors);
    }
  }
}

void TiedParameters::MakeEqual(Transport* transport) const {
  Exchange(
      transport,
      [&](size_t g, size_t i) -> Tensors {
        if (i > 0) return {};
        const TiedCopy& first = groups_[g][0];
        return {Detach(first.parameter),
                FromVector<int64_t>({first.first_element}, {}, {.device = Cpu()})};
      },
      [](const std::vector<Tensors>& values) { return values[0]; },
      [&](size_t g, size_t i, const Tensors& value) {
        if (i == 0) return;
        const TiedCopy& copy = groups_[g][i];
        CheckAlike(groups_[g][0], copy, value[0], value[1].Item<int64_t>());
        CopyInto(copy.parameter, To(value[0], copy.parameter.device()));
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
      transport,
      [&](size_t g, size_t i) -> Tensors { return {autograd::Grad(groups_[g][i].parameter)}; },
      [](const std::vector<Tensors>& gradients) -> Tensors {
        Tensor sum;
        for (const Tensors& gradient : gradients) {
          if (!gradient[0].defined()) continue;
          sum = sum.defined() ? Add(sum, gradient[0]) : gradient[0];
        }
        return {sum};
      },
      [&](size_t g, size_t i, const Tensors& sums) {
        const Tensor& sum = sums[0];
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
