// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/store_frames.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace lockstep::comm {
namespace {

constexpr size_t kLengthBytes = 4;

}  // namespace

std::string EncodeFrame(const google::protobuf::MessageLite& message) {
  std::string frame(kLengthBytes, '\0');
  message.AppendToString(&frame);
  const auto length = static_cast<uint32_t>(frame.size() - kLengthBytes);
  for (size_t i = 0; i < kLengthBytes; ++i) frame[i] = static_cast<char>(length >> (8 * i));
  return frame;
}

bool FrameReader::ReadFrom(int fd) {
  char chunk[16 << 10];
  const ssize_t n = recv(fd, chunk, sizeof(chunk), 0);
  if (n > 0) {
    buffer_.append(chunk, static_cast<size_t>(n));
    return true;
  }
  return n < 0 && (errno == EAGAIN || errno == EINTR);
}

bool FrameReader::Next(google::protobuf::MessageLite* message) {
  if (broken_ || buffer_.size() < kLengthBytes) return false;
  uint32_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint32_t>(static_cast<unsigned char>(buffer_[i])) << (8 * i);
  }
  if (length > max_frame_bytes_) {
    broken_ = true;
    return false;
  }
  if (buffer_.size() < kLengthBytes + length) return false;
  if (!message->ParseFromArray(buffer_.data() + kLengthBytes, static_cast<int>(length))) {
    broken_ = true;
    return false;
  }
  buffer_.erase(0, kLengthBytes + length);
  return true;
}

}  // namespace lockstep::comm
