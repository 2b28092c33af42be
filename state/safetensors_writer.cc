// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/safetensors_writer.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/tensor_data.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

// What stands for the checksum until it is known: as many digits, all of which are replaced.
constexpr char kNoChecksum[] = "0000000000000000";
constexpr int64_t kChecksumDigits = sizeof(kNoChecksum) - 1;

const char* DTypeCode(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kBFloat16:
      return "BF16";
    case DType::kFloat16:
      return "F16";
    case DType::kFloat64:
      return "F64";
    case DType::kInt64:
      return "I64";
    case DType::kInt32:
      return "I32";
    case DType::kUInt8:
      return "U8";
    case DType::kBool:
      break;
  }
  return "BOOL";
}

void CheckDescriptions(const std::vector<TensorDescription>& tensors, const Metadata& metadata) {
  if (metadata.count(kSafetensorsChecksumKey) != 0) {
    throw InvalidArgumentError(absl::StrCat("SafetensorsWriter: metadata key '",
                                            kSafetensorsChecksumKey, "' is reserved"));
  }
  absl::flat_hash_set<std::string> names;
  for (const TensorDescription& tensor : tensors) {
    if (tensor.name == "__metadata__" || tensor.name.empty()) {
      throw InvalidArgumentError(
          absl::StrCat("SafetensorsWriter: '", tensor.name, "' cannot be a tensor's name"));
    }
    if (!names.insert(tensor.name).second) {
      throw InvalidArgumentError(
          absl::StrCat("SafetensorsWriter: '", tensor.name, "' is given twice"));
    }
    NumElements(tensor.shape, "SafetensorsWriter");
  }
}

int64_t Elements(const TensorDescription& tensor) {
  return NumElements(tensor.shape, "SafetensorsWriter");
}

std::string Describe(const TensorDescription& tensor) {
  return absl::StrCat("'", tensor.name, "', ", DTypeName(tensor.dtype), ToString(tensor.shape));
}

// The length and the JSON, padded so that the data begins at a multiple of 8.
std::string MakeHeader(const std::vector<TensorDescription>& tensors, const Metadata& metadata) {
  nlohmann::ordered_json json;
  for (const auto& [key, value] : metadata) json["__metadata__"][key] = value;
  json["__metadata__"][kSafetensorsChecksumKey] = kNoChecksum;
  int64_t offset = 0;
  for (const TensorDescription& tensor : tensors) {
    const int64_t bytes = Elements(tensor) * ItemSize(tensor.dtype);
    nlohmann::ordered_json& entry = json[tensor.name];
    entry["dtype"] = DTypeCode(tensor.dtype);
    entry["shape"] = std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end());
    entry["data_offsets"] = {offset, offset + bytes};
    offset += bytes;
  }
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string header(8, '\0');
  for (int i = 0; i < 8; ++i) {
    header[static_cast<size_t>(i)] = static_cast<char>(text.size() >> 8 * i);
  }
  return header + text;
}

// The checksum is the last entry of the metadata, which comes first: a text that ends with it is as
// long as the header up to there.
int64_t ChecksumPosition(const std::string& header, const Metadata& metadata) {
  nlohmann::ordered_json before;
  for (const auto& [key, value] : metadata) before["__metadata__"][key] = value;
  before["__metadata__"][kSafetensorsChecksumKey] = kNoChecksum;
  const std::string text = before.dump();  // ends in 000..."}}
  const auto position = static_cast<int64_t>(8 + text.size() - 3) - kChecksumDigits;
  if (header.compare(static_cast<size_t>(position), kChecksumDigits, kNoChecksum) != 0) {
    throw InternalError("SafetensorsWriter: the header has no place for the checksum");
  }
  return position;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::vector<TensorDescription> tensors,
                                     const Metadata& metadata)
    : tensors_((CheckDescriptions(tensors, metadata), std::move(tensors))), file_(path) {
  const std::string header = MakeHeader(tensors_, metadata);
  checksum_position_ = ChecksumPosition(header, metadata);
  file_.Append(header);
  if (!tensors_.empty()) left_ = Elements(tensors_[0]);
}

void SafetensorsWriter::CheckTurn(absl::string_view call, absl::string_view name,
                                  const Tensor& tensor) const {
  const auto refuse = [&](absl::string_view why) {
    throw InvalidArgumentError(absl::StrCat("SafetensorsWriter::", call, ": '", name, "', ",
                                            tensor.DebugString(), ": ", why));
  };
  if (next_ == tensors_.size()) refuse("all described tensors have been written");
  const TensorDescription& expected = tensors_[next_];
  if (name != expected.name) refuse(absl::StrCat("the next one is ", Describe(expected)));
  if (!tensor.defined() || tensor.dtype() != expected.dtype) {
    refuse(absl::StrCat("it was described as ", Describe(expected)));
  }
  const DeviceType type = tensor.device().type;
  if (type != DeviceType::kCpu && type != DeviceType::kHost) {
    refuse("it is not in this machine's memory; move it with To(x, Cpu())");
  }
}

void SafetensorsWriter::Append(absl::string_view name, const Tensor& tensor) {
  CheckTurn("Append", name, tensor);
  const TensorDescription& expected = tensors_[next_];
  if (tensor.shape() != expected.shape || left_ != Elements(expected)) {
    throw InvalidArgumentError(absl::StrCat(
        "SafetensorsWriter::Append: '", name, "' is ", tensor.DebugString(),
        "; it was described as ", Describe(expected), ", of which ", left_, " elements are left"));
  }
  Write(tensor);
}

void SafetensorsWriter::AppendElements(absl::string_view name, const Tensor& elements) {
  CheckTurn("AppendElements", name, elements);
  if (elements.numel() > left_) {
    throw InvalidArgumentError(absl::StrCat("SafetensorsWriter::AppendElements: ", elements.numel(),
                                            " elements of ", Describe(tensors_[next_]),
                                            ", of which ", left_, " are left"));
  }
  Write(elements);
}

void SafetensorsWriter::Write(const Tensor& tensor) {
  if (tensor.bytes() > 0) {
    const Tensor rows = Contiguous(tensor);
    hasher_.Update(RawData(rows), static_cast<size_t>(rows.bytes()));
    file_.Append(RawData(rows), rows.bytes());
  }
  left_ -= tensor.numel();
  if (left_ > 0) return;
  ++next_;
  if (next_ < tensors_.size()) left_ = Elements(tensors_[next_]);
}

void SafetensorsWriter::Finish() {
  if (next_ < tensors_.size()) {
    throw FailedPreconditionError(absl::StrCat(
        "SafetensorsWriter::Finish: ", left_, " elements of ", Describe(tensors_[next_]), " and ",
        tensors_.size() - next_ - 1, " tensors after it have not been written"));
  }
  const std::string digits = absl::StrFormat("%016x", hasher_.Finish());
  file_.Overwrite(checksum_position_, digits.data(), kChecksumDigits);
  file_.Publish();
}

}  // namespace lockstep::state
