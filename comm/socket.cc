// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

bool WaitFor(int fd, int16_t events, Deadline deadline) {
  for (;;) {
    pollfd entry = {fd, events, 0};
    const int ready = poll(&entry, 1, deadline.RemainingPollMilliseconds());
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

struct AddressList {
  addrinfo* list = nullptr;
  ~AddressList() {
    if (list != nullptr) freeaddrinfo(list);
  }
};

void Resolve(const std::string& address, int port, bool passive, AddressList* result) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  const int status =
      getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &result->list);
  if (status != 0) {
    throw InvalidArgumentError(
        absl::StrCat("store: cannot resolve address \"", address, "\": ", gai_strerror(status)));
  }
}

sockaddr_un AbstractAddress(absl::string_view name, socklen_t* length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // Byte 0 of the path stays zero: the abstract namespace.
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

UniqueFd NewUnixSocket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    throw ResourceExhaustedError(absl::StrCat("socket: ", ErrnoText(errno)));
  }
  return fd;
}

// Returns 0 or an errno.
int ConnectOnce(const addrinfo& to, Deadline deadline, UniqueFd* result) {
  UniqueFd fd(socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  if (connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!WaitWritable(fd.get(), deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return error;
  }
  const int one = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  SetKeepAlive(fd.get());
  *result = std::move(fd);
  return 0;
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::string ErrnoText(int error) {
  char buffer[128];
  return absl::StrCat(strerror_r(error, buffer, sizeof(buffer)), " (errno ", error, ")");
}

bool WaitReadable(int fd, Deadline deadline) { return WaitFor(fd, POLLIN, deadline); }
bool WaitWritable(int fd, Deadline deadline) { return WaitFor(fd, POLLOUT, deadline); }

IoResult SendAll(int fd, absl::string_view data, Deadline deadline, size_t* done) {
  size_t sent = 0;
  IoResult result = IoResult::kOk;
  while (sent < data.size()) {
    const ssize_t n = send(fd, data.data() + sent, data.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      if (!WaitWritable(fd, deadline)) {
        result = IoResult::kDeadline;
        break;
      }
    } else if (errno != EINTR) {
      result = IoResult::kClosed;
      break;
    }
  }
  if (done != nullptr) *done = sent;
  return result;
}

IoResult ReceiveAll(int fd, char* data, size_t bytes, Deadline deadline, size_t* done) {
  size_t received = 0;
  IoResult result = IoResult::kOk;
  while (received < bytes) {
    const ssize_t n = recv(fd, data + received, bytes - received, 0);
    if (n > 0) {
      received += static_cast<size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      if (!WaitReadable(fd, deadline)) {
        result = IoResult::kDeadline;
        break;
      }
    } else if (n == 0 || errno != EINTR) {
      result = IoResult::kClosed;
      break;
    }
  }
  if (done != nullptr) *done = received;
  return result;
}

IoResult SendMessage(int fd, absl::string_view data, int descriptor, Deadline deadline) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {const_cast<char*>(data.data()), data.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  for (;;) {
    const ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (n == static_cast<ssize_t>(data.size())) return IoResult::kOk;
    // The descriptor travels with the first byte; the rest is plain data.
    if (n > 0) return SendAll(fd, data.substr(static_cast<size_t>(n)), deadline);
    if (errno == EAGAIN || errno == ETOOMANYREFS) {
      if (!WaitWritable(fd, deadline)) return IoResult::kDeadline;
    } else if (errno != EINTR) {
      return IoResult::kClosed;
    }
  }
}

IoResult ReceiveMessage(int fd, char* data, size_t bytes, UniqueFd* descriptor, Deadline deadline) {
  for (;;) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part = {data, bytes};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (n == 0) return IoResult::kClosed;
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return IoResult::kClosed;
      if (!WaitReadable(fd, deadline)) return IoResult::kDeadline;
      continue;
    }
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        int received = -1;
        std::memcpy(&received, CMSG_DATA(header), sizeof(received));
        *descriptor = UniqueFd(received);
      }
    }
    const auto got = static_cast<size_t>(n);
    return got == bytes ? IoResult::kOk : ReceiveAll(fd, data + got, bytes - got, deadline);
  }
}

bool PeerClosed(int fd) {
  pollfd entry = {fd, POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

std::pair<UniqueFd, UniqueFd> MakeSocketPair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
    throw ResourceExhaustedError(absl::StrCat("socketpair: ", ErrnoText(errno)));
  }
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

UniqueFd ListenTcp(const std::string& address, int port) {
  AddressList addresses;
  Resolve(address, port, /*passive=*/true, &addresses);
  UniqueFd fd(socket(addresses.list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (bind(fd.get(), addresses.list->ai_addr, addresses.list->ai_addrlen) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    const std::string text =
        absl::StrCat("store: cannot listen on ", address, ":", port, ": ", ErrnoText(error));
    if (error == EADDRNOTAVAIL) throw InvalidArgumentError(text);
    throw UnavailableError(text);
  }
  return fd;
}

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

UniqueFd ConnectTcp(const std::string& address, int port, Deadline deadline) {
  AddressList addresses;
  Resolve(address, port, /*passive=*/false, &addresses);
  absl::Duration pause = absl::Milliseconds(5);
  for (;;) {
    int error = 0;
    for (const addrinfo* to = addresses.list; to != nullptr; to = to->ai_next) {
      UniqueFd fd;
      error = ConnectOnce(*to, deadline, &fd);
      if (error == 0) return fd;
    }
    if (deadline.Expired()) {
      throw DeadlineExceededError(absl::StrCat("store: nobody answers at ", address, ":", port,
                                               ": ", ErrnoText(error),
                                               "; is rank 0 running, and is this its address?"));
    }
    absl::SleepFor(std::min(pause, deadline.Remaining()));
    pause = std::min(pause * 2, absl::Milliseconds(200));
  }
}

void SetKeepAlive(int socket) {
  const auto set = [socket](int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  // Keep-alive probes do not run while something sent is unacknowledged. While they do, the
  // connection ends with the first probe after that time, the fourth.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 12000);
}

UniqueFd ListenAbstract(absl::string_view name) {
  UniqueFd fd = NewUnixSocket();
  socklen_t length = 0;
  const sockaddr_un address = AbstractAddress(name, &length);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    throw UnavailableError(
        absl::StrCat("cannot listen on abstract socket ", name, ": ", ErrnoText(errno)));
  }
  return fd;
}

UniqueFd ConnectAbstract(absl::string_view name, Deadline deadline) {
  socklen_t length = 0;
  const sockaddr_un address = AbstractAddress(name, &length);
  for (;;) {
    UniqueFd fd = NewUnixSocket();
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
    if (errno != EAGAIN && errno != EINTR) {  // EAGAIN: the listener's queue is full
      throw UnavailableError(
          absl::StrCat("cannot connect to abstract socket ", name, ": ", ErrnoText(errno)));
    }
    if (deadline.Expired()) {
      throw DeadlineExceededError(absl::StrCat("abstract socket ", name, " does not accept"));
    }
    absl::SleepFor(absl::Milliseconds(2));
  }
}

UniqueFd Accept(int listener, Deadline deadline) {
  for (;;) {
    UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) return fd;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN || !WaitReadable(listener, deadline)) return UniqueFd();
  }
}

std::string RandomName() {
  char bytes[16];
  size_t filled = 0;
  while (filled < sizeof(bytes)) {
    const ssize_t n = getrandom(bytes + filled, sizeof(bytes) - filled, 0);
    if (n > 0) filled += static_cast<size_t>(n);
  }
  return absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
}

}  // namespace lockstep::comm
