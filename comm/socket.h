// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sockets with deadlines, and file descriptors with owners.
#ifndef LOCKSTEP_COMM_SOCKET_H_
#define LOCKSTEP_COMM_SOCKET_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "lockstep/base/clock.h"

namespace lockstep::comm {

// Closes the descriptor when it goes. Move-only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

// "Connection refused (errno 111)".
std::string ErrnoText(int error);

enum class IoResult { kOk, kDeadline, kClosed };

// Waits until `fd` can be read (or written, or has ended). False when the deadline passes.
bool WaitReadable(int fd, Deadline deadline);
bool WaitWritable(int fd, Deadline deadline);

// Whole buffers over a non-blocking socket. kClosed: the peer is gone, whatever the reason.
// `done` counts the bytes that were moved.
IoResult SendAll(int fd, absl::string_view data, Deadline deadline, size_t* done = nullptr);
IoResult ReceiveAll(int fd, char* data, size_t bytes, Deadline deadline, size_t* done = nullptr);

// One message with up to one descriptor (-1: none), over a non-blocking unix socket.
IoResult SendMessage(int fd, absl::string_view data, int descriptor, Deadline deadline);
// Receives exactly `bytes` and the descriptor that came with them, if any.
IoResult ReceiveMessage(int fd, char* data, size_t bytes, UniqueFd* descriptor, Deadline deadline);

// Whether the other end has gone. Data that it sent before may still be unread.
bool PeerClosed(int fd);

// Connected, non-blocking, close-on-exec. Throws ResourceExhausted.
std::pair<UniqueFd, UniqueFd> MakeSocketPair();

// Listens on this address only; port 0 takes a free one (see PortOf). Throws InvalidArgument (not
// an address of this host), Unavailable (in use).
UniqueFd ListenTcp(const std::string& address, int port);
int PortOf(int socket);
// Tries until the deadline, since the server may start later. Throws DeadlineExceeded with the last
// reason, InvalidArgument for a name that cannot be resolved.
UniqueFd ConnectTcp(const std::string& address, int port, Deadline deadline);

// Has the kernel notice within 15 seconds that the host of a TCP connection's other end is gone
// (one that only its process has left is noticed at once, without this). ConnectTcp does it.
void SetKeepAlive(int socket);

// Listening and connecting for unix sockets in the abstract namespace: no file, gone with the last
// descriptor.
UniqueFd ListenAbstract(absl::string_view name);
UniqueFd ConnectAbstract(absl::string_view name, Deadline deadline);

// The next connection, non-blocking; invalid when the deadline passes.
UniqueFd Accept(int listener, Deadline deadline);

// 32 hexadecimal digits from the kernel's random numbers.
std::string RandomName();

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_SOCKET_H_
