// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/cpu/strided_loop.h"

#include <algorithm>
#include <cstring>

#include "glog/logging.h"
#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

// Innermost dimensions at least this long are walked run by run, so that operands packed within a
// run need no gathering; shorter ones are gathered across runs, because a block should not be tiny.
constexpr int64_t kLongRun = 64;

struct Plan {
  LoopVector sizes;
  absl::InlinedVector<StridedArray, 4> arrays;
  absl::InlinedVector<DType, 4> compute;
  size_t output_count = 0;
  int64_t numel = 0;
  bool by_runs = true;
  absl::InlinedVector<bool, 4> packed;  // within a run (by_runs), else over the whole loop
  bool any_buffered = false;
};

bool PackedOverall(const LoopVector& sizes, const StridedArray& array) {
  int64_t expected = ItemSize(array.dtype);
  for (size_t i = sizes.size(); i-- > 0;) {
    if (array.strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

DType OutputCompute(const Tensor& tensor, const StridedLoopOptions& options) {
  return options.raw ? tensor.dtype() : ComputeDType(tensor.dtype());
}

DType InputCompute(const Tensor& tensor, const StridedLoopOptions& options) {
  return options.inputs_as ? *options.inputs_as : OutputCompute(tensor, options);
}

Plan MakePlan(absl::Span<const Tensor> outputs, TensorSpan inputs,
              const StridedLoopOptions& options) {
  Plan plan;
  const Shape& shape = outputs[0].shape();
  plan.numel = outputs[0].numel();
  plan.output_count = outputs.size();
  plan.sizes.assign(shape.begin(), shape.end());
  const auto add = [&](const Tensor& tensor, DType compute) {
    plan.arrays.push_back({static_cast<char*>(KernelRawData(tensor)), tensor.dtype(),
                           BroadcastByteStrides(tensor, shape)});
    plan.compute.push_back(compute);
  };
  for (const Tensor& output : outputs) add(output, OutputCompute(output, options));
  for (const Tensor& input : inputs) add(input, InputCompute(input, options));
  const absl::Span<StridedArray> arrays = absl::MakeSpan(plan.arrays);
  if (!options.logical_order) SortDims(plan.sizes, arrays);
  CollapseDims(plan.sizes, arrays);
  plan.by_runs = plan.sizes.size() <= 1 || plan.sizes.back() >= kLongRun;
  for (size_t i = 0; i < plan.arrays.size(); ++i) {
    const StridedArray& array = plan.arrays[i];
    const bool packed = plan.by_runs
                            ? array.strides.empty() || array.strides.back() == ItemSize(array.dtype)
                            : PackedOverall(plan.sizes, array);
    plan.packed.push_back(packed);
    if (!packed || plan.compute[i] != array.dtype) plan.any_buffered = true;
  }
  return plan;
}

// The buffers of one thread, and the steps before and after a body call.
class BlockRunner {
 public:
  explicit BlockRunner(const Plan& plan) : plan_(plan) {}

  void Run(int64_t begin, int64_t end, StridedLoopBody body) {
    LoopPosition position(plan_.sizes, begin);
    while (begin < end) {
      int64_t count = end - begin;
      if (plan_.by_runs) count = std::min(count, position.InnerLeft(plan_.sizes));
      if (plan_.any_buffered) count = std::min(count, kLoopBlock);
      for (size_t i = 0; i < plan_.arrays.size(); ++i)
        data_[i] = Prepare(i, position, begin, count);
      body(begin, count, data_);
      for (size_t i = 0; i < plan_.output_count; ++i) Finish(i, position, begin, count);
      position.Advance(plan_.sizes, count);
      begin += count;
    }
  }

 private:
  bool Converts(size_t i) const { return plan_.compute[i] != plan_.arrays[i].dtype; }

  char* Address(size_t i, const LoopPosition& position, int64_t linear) const {
    const StridedArray& array = plan_.arrays[i];
    return array.data +
           (plan_.by_runs ? position.Offset(array.strides) : linear * ItemSize(array.dtype));
  }

  // Packed elements for the body: the operand itself, or its converted copy.
  char* Prepare(size_t i, const LoopPosition& position, int64_t linear, int64_t count) {
    const StridedArray& array = plan_.arrays[i];
    char* buffer = buffers_[i];
    if (plan_.packed[i]) {
      char* address = Address(i, position, linear);
      if (!Converts(i)) return address;
      if (i >= plan_.output_count) {
        ConvertElements(array.dtype, plan_.compute[i], count, address, buffer);
      }
      return buffer;
    }
    if (i < plan_.output_count) return buffer;
    const bool stretched = plan_.by_runs && array.strides.back() == 0;
    if (stretched) {
      // The same element for the whole run: it may be in the buffer already.
      const char* address = array.data + position.Offset(array.strides);
      if (stretched_from_[i] == address && stretched_count_[i] >= count) return buffer;
      stretched_from_[i] = address;
      stretched_count_[i] = count;
    }
    GatherElements(array, plan_.sizes, position, count, Converts(i) ? scratch_ : buffer);
    if (Converts(i)) ConvertElements(array.dtype, plan_.compute[i], count, scratch_, buffer);
    return buffer;
  }

  void Finish(size_t i, const LoopPosition& position, int64_t linear, int64_t count) {
    const StridedArray& array = plan_.arrays[i];
    if (plan_.packed[i]) {
      if (!Converts(i)) return;
      ConvertElements(plan_.compute[i], array.dtype, count, buffers_[i],
                      Address(i, position, linear));
      return;
    }
    const char* source = buffers_[i];
    if (Converts(i)) {
      ConvertElements(plan_.compute[i], array.dtype, count, buffers_[i], scratch_);
      source = scratch_;
    }
    ScatterElements(array, plan_.sizes, position, count, source);
  }

  const Plan& plan_;
  char* data_[kMaxLoopOperands];
  const char* stretched_from_[kMaxLoopOperands] = {};
  int64_t stretched_count_[kMaxLoopOperands];
  alignas(64) char scratch_[kLoopBlock * 8];
  alignas(64) char buffers_[kMaxLoopOperands][kLoopBlock * 8];
};

// Operands that are all packed in the order of the output, with nothing to convert: no plan is
// needed. This is the way of most calls, and what it costs counts in small ones.
struct PlainOperands {
  char* data[kMaxLoopOperands];
  int64_t item_sizes[kMaxLoopOperands];
  int count = 0;

  // False when the operand is not of that kind. One that broadcasts to the output and has as many
  // elements has its shape, up to sizes of 1 in front.
  bool Add(const Tensor& tensor, int64_t numel, bool converts) {
    const TensorImpl& impl = *tensor.impl_ptr();
    if (!impl.contiguous || converts || impl.numel != numel) return false;
    data[count] = static_cast<char*>(KernelRawData(tensor));
    item_sizes[count++] = ItemSize(impl.dtype);
    return true;
  }

  bool AddAll(absl::Span<const Tensor> outputs, TensorSpan inputs,
              const StridedLoopOptions& options) {
    const int64_t numel = outputs[0].numel();
    for (const Tensor& output : outputs) {
      if (!Add(output, numel, OutputCompute(output, options) != output.dtype())) return false;
    }
    for (const Tensor& input : inputs) {
      if (!Add(input, numel, InputCompute(input, options) != input.dtype())) return false;
    }
    return true;
  }

  void Run(const KernelContext& context, int64_t numel, int64_t chunk, StridedLoopBody body) const {
    if (numel <= chunk) return body(0, numel, data);
    context.ParallelFor(numel, chunk, [&](int64_t begin, int64_t end) {
      char* at[kMaxLoopOperands];
      for (int i = 0; i < count; ++i) at[i] = data[i] + begin * item_sizes[i];
      body(begin, end - begin, at);
    });
  }
};

// Not inlined: what it needs of the stack would be prepared for plain operands, too.
__attribute__((noinline)) void RunPlanned(const KernelContext& context,
                                          absl::Span<const Tensor> outputs, TensorSpan inputs,
                                          StridedLoopBody body, const StridedLoopOptions& options) {
  const Plan plan = MakePlan(outputs, inputs, options);
  context.ParallelFor(outputs[0].numel(), options.chunk,
                      [&](int64_t begin, int64_t end) { BlockRunner(plan).Run(begin, end, body); });
}

template <typename U>
void GatherAs(const StridedArray& array, absl::Span<const int64_t> sizes, LoopPosition position,
              int64_t count, U* out) {
  const int64_t stride = array.strides.empty() ? 0 : array.strides.back();
  while (count > 0) {
    const int64_t run = std::min(count, position.InnerLeft(sizes));
    const char* in = array.data + position.Offset(array.strides);
    if (stride == static_cast<int64_t>(sizeof(U))) {
      std::memcpy(out, in, static_cast<size_t>(run) * sizeof(U));
    } else if (stride == 0) {
      U value;
      std::memcpy(&value, in, sizeof(U));
      std::fill(out, out + run, value);
    } else {
      for (int64_t i = 0; i < run; ++i) std::memcpy(out + i, in + i * stride, sizeof(U));
    }
    out += run;
    count -= run;
    if (count > 0) position.Advance(sizes, run);
  }
}

template <typename U>
void ScatterAs(const StridedArray& array, absl::Span<const int64_t> sizes, LoopPosition position,
               int64_t count, const U* in) {
  const int64_t stride = array.strides.empty() ? 0 : array.strides.back();
  while (count > 0) {
    const int64_t run = std::min(count, position.InnerLeft(sizes));
    char* out = array.data + position.Offset(array.strides);
    if (stride == static_cast<int64_t>(sizeof(U))) {
      std::memcpy(out, in, static_cast<size_t>(run) * sizeof(U));
    } else {
      for (int64_t i = 0; i < run; ++i) std::memcpy(out + i * stride, in + i, sizeof(U));
    }
    in += run;
    count -= run;
    if (count > 0) position.Advance(sizes, run);
  }
}

}  // namespace

LoopVector BroadcastByteStrides(const Tensor& tensor, const Shape& shape) {
  const size_t missing = shape.size() - tensor.shape().size();
  LoopVector strides(shape.size(), 0);
  for (size_t i = 0; i < tensor.shape().size(); ++i) {
    if (tensor.shape()[i] != 1)
      strides[i + missing] = tensor.strides()[i] * ItemSize(tensor.dtype());
  }
  return strides;
}

void SortDims(LoopVector& sizes, absl::Span<StridedArray> arrays) {
  for (size_t i = 1; i < sizes.size(); ++i) {
    for (size_t j = i; j > 0 && arrays[0].strides[j - 1] < arrays[0].strides[j]; --j) {
      std::swap(sizes[j - 1], sizes[j]);
      for (StridedArray& array : arrays) std::swap(array.strides[j - 1], array.strides[j]);
    }
  }
}

void CollapseDims(LoopVector& sizes, absl::Span<StridedArray> arrays) {
  size_t kept = 0;  // dimensions [0, kept) are done
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 1) continue;
    bool merges = kept > 0;
    for (const StridedArray& array : arrays) {
      merges = merges && array.strides[kept - 1] == array.strides[dim] * sizes[dim];
    }
    if (merges) {
      sizes[kept - 1] *= sizes[dim];
      for (StridedArray& array : arrays) array.strides[kept - 1] = array.strides[dim];
      continue;
    }
    sizes[kept] = sizes[dim];
    for (StridedArray& array : arrays) array.strides[kept] = array.strides[dim];
    ++kept;
  }
  sizes.resize(kept);
  for (StridedArray& array : arrays) array.strides.resize(kept);
}

LoopPosition::LoopPosition(absl::Span<const int64_t> sizes, int64_t linear)
    : index_(sizes.size(), 0) {
  for (size_t i = sizes.size(); i-- > 0 && linear > 0;) {
    index_[i] = linear % sizes[i];
    linear /= sizes[i];
  }
}

int64_t LoopPosition::InnerLeft(absl::Span<const int64_t> sizes) const {
  return sizes.empty() ? 1 : sizes.back() - index_.back();
}

void LoopPosition::Advance(absl::Span<const int64_t> sizes, int64_t count) {
  for (size_t i = sizes.size(); i-- > 0 && count > 0;) {
    const int64_t next = index_[i] + count;
    if (next < sizes[i]) {
      index_[i] = next;
      return;
    }
    index_[i] = next % sizes[i];
    count = next / sizes[i];
  }
}

int64_t LoopPosition::Offset(absl::Span<const int64_t> strides) const {
  int64_t offset = 0;
  for (size_t i = 0; i < strides.size(); ++i) offset += index_[i] * strides[i];
  return offset;
}

void GatherElements(const StridedArray& array, absl::Span<const int64_t> sizes,
                    const LoopPosition& position, int64_t count, void* out) {
  switch (ItemSize(array.dtype)) {
    case 1:
      return GatherAs(array, sizes, position, count, static_cast<uint8_t*>(out));
    case 2:
      return GatherAs(array, sizes, position, count, static_cast<uint16_t*>(out));
    case 4:
      return GatherAs(array, sizes, position, count, static_cast<uint32_t*>(out));
    default:
      return GatherAs(array, sizes, position, count, static_cast<uint64_t*>(out));
  }
}

void ScatterElements(const StridedArray& array, absl::Span<const int64_t> sizes,
                     const LoopPosition& position, int64_t count, const void* in) {
  switch (ItemSize(array.dtype)) {
    case 1:
      return ScatterAs(array, sizes, position, count, static_cast<const uint8_t*>(in));
    case 2:
      return ScatterAs(array, sizes, position, count, static_cast<const uint16_t*>(in));
    case 4:
      return ScatterAs(array, sizes, position, count, static_cast<const uint32_t*>(in));
    default:
      return ScatterAs(array, sizes, position, count, static_cast<const uint64_t*>(in));
  }
}

const void* internal::ReadElements(const StridedArray& array, absl::Span<const int64_t> sizes,
                                   const LoopPosition& position, int64_t count, DType as,
                                   void* buffer) {
  const bool packed =
      count == 1 || (!array.strides.empty() && array.strides.back() == ItemSize(array.dtype) &&
                     count <= position.InnerLeft(sizes));
  const char* address = array.data + position.Offset(array.strides);
  if (packed && array.dtype == as) return address;
  if (array.dtype == as) {
    GatherElements(array, sizes, position, count, buffer);
    return buffer;
  }
  alignas(64) char raw[kReadBlock * 8];
  if (!packed) {
    GatherElements(array, sizes, position, count, raw);
    address = raw;
  }
  ConvertElements(array.dtype, as, count, address, buffer);
  return buffer;
}

void RunStridedLoop(const KernelContext& context, absl::Span<const Tensor> outputs,
                    TensorSpan inputs, StridedLoopBody body, const StridedLoopOptions& options) {
  CHECK_LE(outputs.size() + inputs.size(), static_cast<size_t>(kMaxLoopOperands));
  const int64_t numel = outputs[0].numel();
  if (numel == 0) return;
  PlainOperands plain;
  if (plain.AddAll(outputs, inputs, options)) return plain.Run(context, numel, options.chunk, body);
  RunPlanned(context, outputs, inputs, body, options);
}

}  // namespace lockstep::cpu
