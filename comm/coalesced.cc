// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Communicator's collectives of lists: one collective over a buffer that holds them all.

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/checks.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/tensor_memory.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm {
namespace {

std::vector<Tensor> Copy(absl::Span<const Tensor> tensors) {
  return {tensors.begin(), tensors.end()};
}

int64_t TotalCount(absl::Span<const Tensor> tensors) {
  int64_t count = 0;
  for (const Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

Tensor Buffer(int64_t count, DType dtype) {
  CategoryScope category(MemoryCategory::kCommunication);
  return Empty({count}, {dtype, {}});
}

// FNV-1a over the counts.
uint64_t HashOf(absl::Span<const Tensor> tensors) {
  uint64_t hash = 14695981039346656037u;
  for (const Tensor& tensor : tensors) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash ^= (static_cast<uint64_t>(tensor.numel()) >> shift) & 255;
      hash *= 1099511628211u;
    }
  }
  return hash;
}

void SetList(Collective* collective, absl::Span<const Tensor> tensors) {
  collective->signature.list = HashOf(tensors);
  collective->signature.tensors = static_cast<int32_t>(tensors.size());
}

char* BytesOf(const Tensor& tensor) { return static_cast<char*>(KernelRawData(tensor)); }

// Writes what a list was given for. The versions of `outputs` were advanced at the call.
void UnpackList(const Tensor& buffer, const std::vector<Tensor>& outputs) {
  const char* from = BytesOf(buffer);
  for (const Tensor& output : outputs) {
    UnpackFrom(from, output);
    from += output.bytes();
  }
}

// The buffer holds rank by rank what each tensor holds rank by rank. Calls copy(address in the
// buffer, address in the row-major tensor, bytes).
template <typename Function>
void ForEachPart(const Tensor& buffer, absl::Span<const Tensor> wholes, int size,
                 const Function& copy) {
  char* at = BytesOf(buffer);
  for (int rank = 0; rank < size; ++rank) {
    for (const Tensor& whole : wholes) {
      const int64_t part = whole.bytes() / size;
      if (part > 0) copy(at, BytesOf(whole) + part * rank, static_cast<size_t>(part));
      at += part;
    }
  }
}

}  // namespace

void Communicator::CheckLists(absl::string_view call, absl::Span<const Tensor> inputs,
                              absl::Span<const Tensor> outputs) const {
  if (inputs.empty() || inputs.size() != outputs.size()) {
    throw InvalidArgumentError(absl::StrCat(call, ": ", inputs.size(), " inputs and ",
                                            outputs.size(),
                                            " outputs: as many of each, and at least one"));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const Tensor& tensor : {inputs[i], outputs[i]}) {
      CheckDefined(call, absl::StrCat("tensor ", i, " of the list"), tensor);
      CheckDevice(call, tensor);
      if (tensor.dtype() != inputs[0].dtype()) {
        throw InvalidArgumentError(absl::StrCat(
            call, ": tensor 0 of the list is ", DTypeName(inputs[0].dtype()), " and tensor ", i,
            " is ", DTypeName(tensor.dtype()), ": make one call for each dtype"));
      }
    }
    CheckWritable(call, outputs[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t j = 0; j < outputs.size(); ++j) {
      if (i != j && (RangeOf(outputs[i]).Overlaps(RangeOf(outputs[j])) ||
                     RangeOf(outputs[i]).Overlaps(RangeOf(inputs[j])))) {
        throw InvalidArgumentError(
            absl::StrCat(call, ": tensors ", i, " and ", j, " of the list share memory"));
      }
    }
  }
}

void Communicator::CheckListParts(absl::string_view call, absl::Span<const Tensor> parts,
                                  absl::Span<const Tensor> wholes,
                                  const std::vector<int64_t>& counts) const {
  if (!counts.empty()) {
    throw InvalidArgumentError(
        absl::StrCat(call, ": the parts of a list are equal; call once a tensor to give counts"));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (wholes[i].numel() != parts[i].numel() * size_) {
      throw InvalidArgumentError(absl::StrCat(
          call, ": tensor ", i, " of the list: ", wholes[i].numel(), " elements, but ", size_,
          " ranks times ", ToString(parts[i].shape()), " is ", parts[i].numel() * size_));
    }
    if (!wholes[i].is_contiguous()) {
      throw InvalidArgumentError(absl::StrCat(
          call, ": tensor ", i, " of the list, with a part for ", "each rank, has strides ",
          ToString(wholes[i].strides()), ": it must be row-major"));
    }
    CheckNoOverlap(call, parts[i], wholes[i]);
  }
}

Work Communicator::AllReduceCoalesced(absl::Span<const Tensor> tensors,
                                      const AllReduceOptions& options) {
  CheckLists("AllReduceCoalesced", tensors, tensors);
  const DType dtype = tensors[0].dtype();
  CheckReduceOp("AllReduceCoalesced", options.op, dtype, options.factor);
  const Tensor buffer = Buffer(TotalCount(tensors), dtype);
  Collective collective =
      MakeCollective(CollectiveId::kAllReduce, buffer, buffer, buffer.numel(), options.timeout);
  collective.signature.tag = options.tag;
  SetReduction(&collective, options.op, options.factor);
  SetList(&collective, tensors);
  char* to = BytesOf(buffer);
  for (const Tensor& tensor : tensors) {
    PackInto(tensor, to);
    to += tensor.bytes();
  }
  for (const Tensor& tensor : tensors) MutableRawData(tensor);
  collective.finish = [buffer, outputs = Copy(tensors)] { UnpackList(buffer, outputs); };
  return Issue(std::move(collective));
}

Work Communicator::AllGatherCoalesced(absl::Span<const Tensor> inputs,
                                      absl::Span<const Tensor> outputs,
                                      const AllGatherOptions& options) {
  constexpr absl::string_view kCall = "AllGatherCoalesced";
  CheckLists(kCall, inputs, outputs);
  CheckListParts(kCall, inputs, outputs, options.counts);
  const Tensor buffer = Buffer(TotalCount(inputs), inputs[0].dtype());
  const Tensor gathered = Buffer(buffer.numel() * size(), buffer.dtype());
  Collective collective =
      MakeCollective(CollectiveId::kAllGather, buffer, gathered, buffer.numel(), options.timeout);
  collective.signature.tag = options.tag;
  SetList(&collective, inputs);
  char* to = BytesOf(buffer);
  for (const Tensor& input : inputs) {
    PackInto(input, to);
    to += input.bytes();
  }
  for (const Tensor& output : outputs) MutableRawData(output);
  collective.finish = [gathered, outputs = Copy(outputs), size = size()] {
    ForEachPart(gathered, outputs, size,
                [](const char* from, char* part, size_t bytes) { std::memcpy(part, from, bytes); });
  };
  return Issue(std::move(collective));
}

Work Communicator::ReduceScatterCoalesced(absl::Span<const Tensor> inputs,
                                          absl::Span<const Tensor> outputs,
                                          const ReduceScatterOptions& options) {
  constexpr absl::string_view kCall = "ReduceScatterCoalesced";
  CheckLists(kCall, inputs, outputs);
  CheckListParts(kCall, outputs, inputs, options.counts);
  const DType dtype = inputs[0].dtype();
  CheckReduceOp(kCall, options.op, dtype, options.factor);
  const Tensor buffer = Buffer(TotalCount(inputs), dtype);
  const Tensor reduced = Buffer(TotalCount(outputs), dtype);
  Collective collective = MakeCollective(CollectiveId::kReduceScatter, buffer, reduced,
                                         reduced.numel(), options.timeout);
  collective.signature.tag = options.tag;
  SetReduction(&collective, options.op, options.factor);
  SetList(&collective, outputs);
  for (const Tensor& input : inputs) RawData(input);  // waits for copies into it
  ForEachPart(buffer, inputs, size(),
              [](char* to, const char* part, size_t bytes) { std::memcpy(to, part, bytes); });
  for (const Tensor& output : outputs) MutableRawData(output);
  collective.finish = [reduced, outputs = Copy(outputs)] { UnpackList(reduced, outputs); };
  return Issue(std::move(collective));
}

}  // namespace lockstep::comm
