// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/control_message.h"

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::comm::gloo {
namespace {

constexpr uint32_t kMagic = 0x4c534743;  // "CGSL"

struct FrameHead {
  uint32_t magic = kMagic;
  uint32_t kind = 0;
  uint32_t body_bytes = 0;
  uint32_t checksum = 0;
};

uint32_t ChecksumOf(uint32_t kind, absl::string_view body) {
  uLong crc = crc32(0, reinterpret_cast<const Bytef*>(&kind), sizeof(kind));
  crc = crc32(crc, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return static_cast<uint32_t>(crc);
}

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void PutBytes(absl::string_view text) { bytes_.append(text.data(), text.size()); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(absl::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Take() {
    if (rest_.size() < sizeof(T)) throw DataLossError("a control message is too short");
    T value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  absl::string_view rest() const { return rest_; }

 private:
  absl::string_view rest_;
};

void PutSignature(const Signature& s, Writer* out) {
  out->Put(s.count);
  out->Put(s.tag);
  out->Put(s.factor);
  out->Put(s.list);
  out->Put(s.tensors);
  out->Put(s.root);
  out->Put(s.peer);
  out->Put(s.op);
  out->Put(s.dtype);
  out->Put(s.reduce_op);
  out->Put(static_cast<uint8_t>((s.reduces ? 1 : 0) | (s.uneven ? 2 : 0)));
}

Signature TakeSignature(Reader* in) {
  Signature s;
  s.count = in->Take<int64_t>();
  s.tag = in->Take<int64_t>();
  s.factor = in->Take<double>();
  s.list = in->Take<uint64_t>();
  s.tensors = in->Take<int32_t>();
  s.root = in->Take<int32_t>();
  s.peer = in->Take<int32_t>();
  s.op = in->Take<CollectiveId>();
  s.dtype = in->Take<DType>();
  s.reduce_op = in->Take<ReduceOp>();
  const uint8_t flags = in->Take<uint8_t>();
  s.reduces = (flags & 1) != 0;
  s.uneven = (flags & 2) != 0;
  if (s.op >= CollectiveId::kCount || static_cast<int>(s.reduce_op) >= kReduceOpCount) {
    throw DataLossError("a control message holds a call that does not exist");
  }
  return s;
}

std::string BodyOf(const ControlMessage& message) {
  Writer out;
  switch (message.kind) {
    case MessageKind::kCall:
      out.Put(message.sequence);
      PutSignature(message.signature, &out);
      for (const int64_t count : message.counts) out.Put(count);
      break;
    case MessageKind::kGo:
      out.Put(message.sequence);
      break;
    case MessageKind::kExpired:
      out.Put(message.sequence);
      out.Put(absl::ToInt64Nanoseconds(message.timeout));
      out.PutBytes(message.text);
      break;
    case MessageKind::kMissing:
      out.Put(message.sequence);
      for (const int64_t rank : message.counts) out.Put(rank);
      break;
    case MessageKind::kFailed:
      out.Put(static_cast<int32_t>(message.code));
      out.PutBytes(message.text);
      break;
    case MessageKind::kLeft:
      out.Put(message.rank);
      break;
    case MessageKind::kAlive:
      break;
  }
  return out.bytes();
}

void ParseBody(absl::string_view body, ControlMessage* message) {
  Reader in(body);
  switch (message->kind) {
    case MessageKind::kCall:
      message->sequence = in.Take<int64_t>();
      message->signature = TakeSignature(&in);
      while (!in.rest().empty()) message->counts.push_back(in.Take<int64_t>());
      return;
    case MessageKind::kGo:
      message->sequence = in.Take<int64_t>();
      return;
    case MessageKind::kExpired:
      message->sequence = in.Take<int64_t>();
      message->timeout = absl::Nanoseconds(in.Take<int64_t>());
      message->text = std::string(in.rest());
      return;
    case MessageKind::kMissing:
      message->sequence = in.Take<int64_t>();
      while (!in.rest().empty()) message->counts.push_back(in.Take<int64_t>());
      return;
    case MessageKind::kFailed:
      message->code = static_cast<absl::StatusCode>(in.Take<int32_t>());
      message->text = std::string(in.rest());
      return;
    case MessageKind::kLeft:
      message->rank = in.Take<int32_t>();
      return;
    case MessageKind::kAlive:
      return;
  }
  throw DataLossError(
      absl::StrCat("a control message of unknown kind ", static_cast<uint32_t>(message->kind)));
}

}  // namespace

std::string EncodeMessage(const ControlMessage& message) {
  const std::string body = BodyOf(message);
  FrameHead head;
  head.kind = static_cast<uint32_t>(message.kind);
  head.body_bytes = static_cast<uint32_t>(body.size());
  head.checksum = ChecksumOf(head.kind, body);
  Writer out;
  out.Put(head);
  out.PutBytes(body);
  return out.bytes();
}

size_t DecodeMessage(absl::string_view bytes, ControlMessage* message) {
  FrameHead head;
  if (bytes.size() < sizeof(head)) return 0;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.magic != kMagic || head.body_bytes > kMaxControlBody) {
    throw DataLossError("bytes that are no control message");
  }
  if (bytes.size() < sizeof(head) + head.body_bytes) return 0;
  const absl::string_view body = bytes.substr(sizeof(head), head.body_bytes);
  if (ChecksumOf(head.kind, body) != head.checksum) {
    throw DataLossError("a control message whose checksum is wrong");
  }
  *message = ControlMessage();
  message->kind = static_cast<MessageKind>(head.kind);
  ParseBody(body, message);
  return sizeof(head) + head.body_bytes;
}

std::string EncodeSignature(const Signature& signature, int64_t number) {
  Writer body;
  body.Put(number);
  PutSignature(signature, &body);
  FrameHead head;
  head.body_bytes = static_cast<uint32_t>(body.bytes().size());
  head.checksum = ChecksumOf(head.kind, body.bytes());
  Writer out;
  out.Put(head);
  out.PutBytes(body.bytes());
  std::string frame = out.bytes();
  frame.resize(kSignatureFrame);
  return frame;
}

Signature DecodeSignature(absl::string_view frame, int64_t* number) {
  FrameHead head;
  std::memcpy(&head, frame.data(), sizeof(head));
  if (head.magic != kMagic || sizeof(head) + head.body_bytes > kSignatureFrame) {
    throw DataLossError("bytes that are no header of a transfer");
  }
  const absl::string_view body = frame.substr(sizeof(head), head.body_bytes);
  if (ChecksumOf(head.kind, body) != head.checksum) {
    throw DataLossError("a transfer's header whose checksum is wrong");
  }
  Reader in(body);
  *number = in.Take<int64_t>();
  return TakeSignature(&in);
}

}  // namespace lockstep::comm::gloo
