// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/byte_strings.h"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm {
namespace {

Tensor ToTensor(absl::string_view bytes) {
  const Tensor tensor = Empty({static_cast<int64_t>(bytes.size())}, {DType::kUInt8, {}});
  if (!bytes.empty()) std::memcpy(MutableRawData(tensor), bytes.data(), bytes.size());
  return tensor;
}

std::string ToText(const Tensor& tensor, int64_t begin, int64_t length) {
  if (length == 0) return "";
  return std::string(static_cast<const char*>(RawData(tensor)) + begin,
                     static_cast<size_t>(length));
}

std::vector<std::string> Cut(const Tensor& tensor, const std::vector<int64_t>& lengths) {
  std::vector<std::string> parts;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    parts.push_back(ToText(tensor, begin, length));
    begin += length;
  }
  return parts;
}

int64_t Sum(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

std::vector<int64_t> AllLengths(Communicator& communicator, absl::string_view bytes) {
  const Tensor lengths = Empty({communicator.size()}, {DType::kInt64, {}});
  const auto mine = static_cast<int64_t>(bytes.size());
  communicator.AllGather(FromVector<int64_t>({mine}, {1}), lengths).Wait();
  return lengths.ToVector<int64_t>();
}

}  // namespace

std::string BroadcastBytes(Communicator& communicator, absl::string_view bytes, int root) {
  const Tensor length = FromVector<int64_t>({static_cast<int64_t>(bytes.size())}, {1});
  communicator.Broadcast(length, {.root = root}).Wait();
  const int64_t count = length.Item<int64_t>({0});
  if (count == 0) return "";
  const bool is_root = communicator.rank() == root;
  const Tensor data = is_root ? ToTensor(bytes) : Empty({count}, {DType::kUInt8, {}});
  communicator.Broadcast(data, {.root = root}).Wait();
  return is_root ? std::string(bytes) : ToText(data, 0, count);
}

std::vector<std::string> AllGatherBytes(Communicator& communicator, absl::string_view bytes) {
  const std::vector<int64_t> lengths = AllLengths(communicator, bytes);
  const Tensor all = Empty({Sum(lengths)}, {DType::kUInt8, {}});
  if (all.numel() > 0) communicator.AllGather(ToTensor(bytes), all, {.counts = lengths}).Wait();
  return Cut(all, lengths);
}

std::vector<std::string> GatherBytes(Communicator& communicator, absl::string_view bytes,
                                     int root) {
  const std::vector<int64_t> lengths = AllLengths(communicator, bytes);
  const bool is_root = communicator.rank() == root;
  const Tensor all = is_root ? Empty({Sum(lengths)}, {DType::kUInt8, {}}) : Tensor();
  // Always, so that a wrong root is told.
  communicator.Gather(ToTensor(bytes), all, {.root = root, .counts = lengths}).Wait();
  if (!is_root) return {};
  return Cut(all, lengths);
}

std::string ScatterBytes(Communicator& communicator, absl::Span<const std::string> parts,
                         int root) {
  const int size = communicator.size();
  const bool is_root = communicator.rank() == root;
  // One for each rank, and how many parts the root really has: if that is wrong all ranks throw.
  std::vector<int64_t> lengths(static_cast<size_t>(size) + 1, 0);
  std::string joined;
  if (is_root) lengths.back() = static_cast<int64_t>(parts.size());
  for (size_t rank = 0; is_root && rank < parts.size() && rank + 1 < lengths.size(); ++rank) {
    lengths[rank] = static_cast<int64_t>(parts[rank].size());
    joined += parts[rank];
  }
  const Tensor all_lengths = FromVector<int64_t>(lengths, {size + 1});
  communicator.Broadcast(all_lengths, {.root = root}).Wait();
  lengths = all_lengths.ToVector<int64_t>();
  if (lengths.back() != size) {
    throw lockstep::InvalidArgumentError(absl::StrCat("ScatterBytes: rank ", root, " gives ",
                                                      lengths.back(), " parts for ", size,
                                                      " ranks: give one for each"));
  }
  lengths.pop_back();
  const int64_t mine = lengths[static_cast<size_t>(communicator.rank())];
  const Tensor output = Empty({mine}, {DType::kUInt8, {}});
  if (Sum(lengths) > 0) {
    const Tensor input = is_root ? ToTensor(joined) : Tensor();
    communicator.Scatter(input, output, {.root = root, .counts = lengths}).Wait();
  }
  return ToText(output, 0, mine);
}

}  // namespace lockstep::comm
