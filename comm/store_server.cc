// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/store.pb.h"
#include "lockstep/comm/store_frames.h"
#include "lockstep/comm/store_token.h"
#include "lockstep/comm/store_values.h"

namespace lockstep::comm {
namespace {

// Under a flood, a stranger that has been here for longer makes room for the next one. Handshakes
// take two round trips.
constexpr absl::Duration kPatience = absl::Milliseconds(500);
// Accepting goes on then when there were no descriptors.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
// A client that does not read its answers is dropped at this much.
constexpr size_t kMaxUnsentBytes = 8 << 20;

struct PendingWait {
  uint64_t id = 0;
  std::vector<std::string> keys;
  Deadline deadline;
};

struct Connection {
  explicit Connection(UniqueFd fd) : socket(std::move(fd)) {}

  bool Stranger() const { return !authenticated && !dropped; }

  UniqueFd socket;
  bool authenticated = false;
  std::string client_nonce;
  std::string server_nonce;  // empty until the client has sent its own
  Deadline handshake_deadline;
  Deadline patience = Deadline::After(kPatience);
  FrameReader frames{kMaxHandshakeFrameBytes};
  std::string unsent;
  std::list<PendingWait> waits;
  bool dropped = false;
};

void CheckServerOptions(const StoreServerOptions& options) {
  if (options.handshake_timeout <= absl::ZeroDuration()) {
    throw InvalidArgumentError(absl::StrCat("StoreServer: handshake_timeout is ",
                                            absl::FormatDuration(options.handshake_timeout),
                                            ": it must be positive"));
  }
}

}  // namespace

// Everything but `adopted_` and `stopping_` belongs to the server's thread.
class StoreServer::Impl {
 public:
  explicit Impl(const StoreServerOptions& options)
      : token_(options.token),
        handshake_timeout_(options.handshake_timeout),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_.valid()) throw ResourceExhaustedError("store: eventfd: " + ErrnoText(errno));
    if (options.listen) {
      listener_ = ListenTcp(options.address, options.port);
      port_ = PortOf(listener_.get());
    }
    thread_ = std::thread([this] { Run(); });
  }

  ~Impl() {
    stopping_.store(true);
    Wake();
    thread_.join();
  }

  int port() const { return port_; }

  void Adopt(UniqueFd socket) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      adopted_.push_back(std::move(socket));
    }
    Wake();
  }

 private:
  void Wake() {
    const uint64_t one = 1;
    while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

  void Run() {
    while (!stopping_.load()) {
      std::vector<pollfd> entries = PollEntries();
      poll(entries.data(), entries.size(), NextDeadline().RemainingPollMilliseconds());
      size_t next = 0;
      const bool adopting = entries[next++].revents != 0;
      const bool accepting = entries[next++].revents != 0;
      for (const auto& connection : connections_) {
        const int16_t events = entries[next++].revents;
        if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) ReadRequests(*connection);
        if ((events & POLLOUT) != 0) Flush(*connection);
      }
      // Only now, because the entries above correspond to the connections as they were.
      if (adopting) TakeAdopted();
      if (accepting) AcceptStrangers();
      ExpireWaits();
      connections_.remove_if([](const auto& c) { return c->dropped; });
    }
  }

  std::vector<pollfd> PollEntries() const {
    std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
    const bool accepting = accept_again_.Expired() && HasRoom();
    entries.push_back({accepting ? listener_.get() : -1, POLLIN, 0});  // poll skips negative ones
    for (const auto& connection : connections_) {
      const int16_t events = connection->unsent.empty() ? POLLIN : POLLIN | POLLOUT;
      entries.push_back({connection->socket.get(), events, 0});
    }
    return entries;
  }

  int Strangers() const {
    return static_cast<int>(std::count_if(connections_.begin(), connections_.end(),
                                          [](const auto& c) { return c->Stranger(); }));
  }

  // Null when there is none. Connections are in order of arrival.
  Connection* OldestStranger() const {
    for (const auto& connection : connections_) {
      if (connection->Stranger()) return connection.get();
    }
    return nullptr;
  }

  bool HasRoom() const {
    return Strangers() < kMaxStoreStrangers || OldestStranger()->patience.Expired();
  }

  Deadline NextDeadline() const {
    Deadline next;
    if (!accept_again_.Expired()) next = accept_again_;
    if (!HasRoom()) next = std::min(next, OldestStranger()->patience);
    for (const auto& connection : connections_) {
      if (connection->Stranger()) next = std::min(next, connection->handshake_deadline);
      for (const PendingWait& wait : connection->waits) next = std::min(next, wait.deadline);
    }
    return next;
  }

  void TakeAdopted() {
    uint64_t count = 0;
    while (read(wake_.get(), &count, sizeof(count)) < 0 && errno == EINTR) {
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (UniqueFd& fd : adopted_) {
      connections_.push_back(std::make_unique<Connection>(std::move(fd)));
      Trust(*connections_.back());
    }
    adopted_.clear();
  }

  void AcceptStrangers() {
    while (HasRoom()) {
      UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          accept_again_ = Deadline::After(kAcceptPause);
        }
        return;
      }
      if (Strangers() >= kMaxStoreStrangers) OldestStranger()->dropped = true;
      SetKeepAlive(fd.get());
      connections_.push_back(std::make_unique<Connection>(std::move(fd)));
      connections_.back()->handshake_deadline = Deadline::After(handshake_timeout_);
    }
  }

  static void Trust(Connection& connection) {
    connection.authenticated = true;
    connection.frames.set_max_frame_bytes(kMaxStoreFrameBytes);
  }

  void ReadRequests(Connection& connection) {
    if (!connection.frames.ReadFrom(connection.socket.get())) connection.dropped = true;
    StoreRequest request;
    while (!connection.dropped && connection.frames.Next(&request)) Handle(connection, request);
    if (connection.frames.broken()) connection.dropped = true;
  }

  void Handle(Connection& connection, const StoreRequest& request) {
    StoreResponse response;
    response.set_id(request.id());
    if (!connection.authenticated) return Authenticate(connection, request, &response);
    try {
      if (!Execute(connection, request, &response)) return;  // waits for its keys
    } catch (const Error& error) {
      response.set_code(static_cast<int32_t>(error.code()));
      response.set_message(error.message());
    }
    Answer(connection, response);
  }

  // One step of the handshake (store_token.h). Anything else ends the connection.
  void Authenticate(Connection& connection, const StoreRequest& request, StoreResponse* response) {
    if (request.operation() == StoreRequest::HELLO && connection.server_nonce.empty() &&
        request.nonce().size() == kNonceBytes) {
      connection.client_nonce = request.nonce();
      connection.server_nonce = NewNonce();
      response->set_nonce(connection.server_nonce);
      return Answer(connection, *response);
    }
    if (request.operation() != StoreRequest::PROVE || connection.server_nonce.empty()) {
      connection.dropped = true;
      return;
    }
    const std::string& theirs = connection.client_nonce;
    const std::string& ours = connection.server_nonce;
    if (SameProof(request.proof(), ClientProof(token_, theirs, ours))) {
      Trust(connection);
      response->set_proof(ServerProof(token_, theirs, ours));
      return Answer(connection, *response);
    }
    response->set_code(static_cast<int32_t>(absl::StatusCode::kInvalidArgument));
    Answer(connection, *response);
    connection.dropped = true;
  }

  // False when the answer comes later.
  bool Execute(Connection& connection, const StoreRequest& request, StoreResponse* response) {
    const std::vector<std::string> keys(request.keys().begin(), request.keys().end());
    for (const std::string& key : keys) CheckStoreKey(key);
    if (keys.empty() && request.operation() != StoreRequest::WAIT) {
      throw InvalidArgumentError("store: a request without a key");
    }
    switch (request.operation()) {
      case StoreRequest::SET:
        CheckStoreValue(keys[0], request.value());
        values_[keys[0]] = request.value();
        AnswerWaits();
        return true;
      case StoreRequest::ADD:
        response->set_number(AddToStoreValue(values_, keys[0], request.delta()));
        AnswerWaits();
        return true;
      case StoreRequest::DELETE:
        response->set_number(values_.erase(keys[0]) > 0 ? 1 : 0);
        return true;
      case StoreRequest::WAIT:
        return ExecuteWait(connection, request, keys, response);
      default:
        throw InvalidArgumentError("store: unknown operation; is the client of this version?");
    }
  }

  bool ExecuteWait(Connection& connection, const StoreRequest& request,
                   const std::vector<std::string>& keys, StoreResponse* response) {
    if (MissingKeys(values_, keys).empty()) {
      if (keys.size() == 1) response->set_value(values_[keys[0]]);
      return true;
    }
    const Deadline deadline = request.timeout_ms() < 0
                                  ? Deadline::Infinite()
                                  : Deadline::After(absl::Milliseconds(request.timeout_ms()));
    connection.waits.push_back({request.id(), keys, deadline});
    return false;
  }

  // Answers the waits whose keys are all there now.
  void AnswerWaits() {
    for (const auto& connection : connections_) {
      connection->waits.remove_if([&](const PendingWait& wait) {
        if (!MissingKeys(values_, wait.keys).empty()) return false;
        StoreResponse response;
        response.set_id(wait.id);
        if (wait.keys.size() == 1) response.set_value(values_[wait.keys[0]]);
        Answer(*connection, response);
        return true;
      });
    }
  }

  void ExpireWaits() {
    for (const auto& connection : connections_) {
      if (connection->Stranger() && connection->handshake_deadline.Expired()) {
        connection->dropped = true;
      }
      connection->waits.remove_if([&](const PendingWait& wait) {
        if (!wait.deadline.Expired()) return false;
        StoreResponse response;
        response.set_id(wait.id);
        response.set_code(static_cast<int32_t>(absl::StatusCode::kDeadlineExceeded));
        for (const std::string& key : MissingKeys(values_, wait.keys)) response.add_missing(key);
        Answer(*connection, response);
        return true;
      });
    }
  }

  void Answer(Connection& connection, const StoreResponse& response) {
    connection.unsent += EncodeFrame(response);
    Flush(connection);
  }

  void Flush(Connection& connection) {
    if (connection.dropped) return;
    size_t done = 0;
    const IoResult result = SendAll(connection.socket.get(), connection.unsent,
                                    Deadline::After(absl::ZeroDuration()), &done);
    connection.unsent.erase(0, done);
    if (result == IoResult::kClosed || connection.unsent.size() > kMaxUnsentBytes) {
      connection.dropped = true;
    }
  }

  const std::string token_;
  const absl::Duration handshake_timeout_;
  UniqueFd wake_;
  UniqueFd listener_;
  int port_ = 0;
  Deadline accept_again_ = Deadline::After(absl::ZeroDuration());
  StoreValues values_;
  std::list<std::unique_ptr<Connection>> connections_;

  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<UniqueFd> adopted_;
  std::thread thread_;
};

StoreServer::StoreServer(const StoreServerOptions& options)
    : impl_((CheckServerOptions(options), std::make_unique<Impl>(options))) {
  auto [ours, theirs] = MakeSocketPair();
  Adopt(theirs.release());
  local_ = std::make_shared<StoreClient>(ours.release(), "store of this process");
}

StoreServer::~StoreServer() = default;

int StoreServer::port() const { return impl_->port(); }

void StoreServer::Adopt(int socket) { impl_->Adopt(UniqueFd(socket)); }

}  // namespace lockstep::comm
