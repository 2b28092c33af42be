// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Frames of the store's protocol: four bytes of length, lowest first, then a protobuf message.
#ifndef LOCKSTEP_COMM_STORE_FRAMES_H_
#define LOCKSTEP_COMM_STORE_FRAMES_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

namespace lockstep::comm {

// A value and a list of keys, with room for the rest.
inline constexpr uint32_t kMaxStoreFrameBytes = (1 << 20) + (256 << 10);

// The same before the client has proved that it knows the token.
inline constexpr uint32_t kMaxHandshakeFrameBytes = 1 << 10;

std::string EncodeFrame(const google::protobuf::MessageLite& message);

// Cuts a byte stream into messages. Never holds more than one frame and one read.
class FrameReader {
 public:
  explicit FrameReader(uint32_t max_frame_bytes) : max_frame_bytes_(max_frame_bytes) {}

  void set_max_frame_bytes(uint32_t bytes) { max_frame_bytes_ = bytes; }
  // Takes what the socket has. False when the stream has ended.
  bool ReadFrom(int fd);
  // The same for bytes that are here already.
  void Append(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
  // The next whole message. False when there is none yet, or the stream is broken.
  bool Next(google::protobuf::MessageLite* message);
  // After a length beyond the maximum or bytes that are no such message.
  bool broken() const { return broken_; }

 private:
  uint32_t max_frame_bytes_;
  std::string buffer_;
  bool broken_ = false;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_STORE_FRAMES_H_
