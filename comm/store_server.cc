// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
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
#include "lockstep/comm/store_waits.h"

namespace lockstep::comm {
namespace {

// Under a flood, a stranger that has been here for longer makes room for the next one. Handshakes
// take two round trips.
constexpr absl::Duration kPatience = absl::Milliseconds(500);
// Accepting goes on then when there were no descriptors.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
// A client that does not read its answers is dropped at this much: more than a client that reads
// can have asked for.
constexpr size_t kMaxUnsentBytes = size_t{kMaxStoreCallsInFlight + 1} * kMaxStoreFrameBytes;

struct Connection {
  Connection(uint64_t number, UniqueFd fd) : id(number), socket(std::move(fd)) {}

  const uint64_t id;  // in order of arrival
  UniqueFd socket;
  bool authenticated = false;
  std::string client_nonce;
  std::string server_nonce;  // empty until the client has sent its own
  Deadline handshake_deadline;
  Deadline patience = Deadline::After(kPatience);
  FrameReader frames{kMaxHandshakeFrameBytes};
  std::string unsent;
  bool awaits_room = false;  // whether the poller tells when it can be written
  bool dropped = false;      // to be forgotten at the end of this round
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
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        poller_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!wake_.valid() || !poller_.valid()) {
      throw ResourceExhaustedError("store: eventfd or epoll_create1: " + ErrnoText(errno));
    }
    Poll(EPOLL_CTL_ADD, wake_.get(), kWakeId, EPOLLIN);
    if (options.listen) {
      listener_ = ListenTcp(options.address, options.port);
      port_ = PortOf(listener_.get());
      Poll(EPOLL_CTL_ADD, listener_.get(), kListenerId, EPOLLIN);
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

  // What the poller reports instead of a connection's number.
  static constexpr uint64_t kWakeId = 0;
  static constexpr uint64_t kListenerId = 1;
  static constexpr uint64_t kFirstConnectionId = 2;

  void Run() {
    epoll_event events[256];
    while (!stopping_.load()) {
      WatchListener();
      const int count = epoll_wait(poller_.get(), events, std::size(events),
                                   NextDeadline().RemainingPollMilliseconds());
      for (int i = 0; i < count; ++i) HandleEvent(events[i].data.u64, events[i].events);
      Expire();
      ForgetDropped();
    }
  }

  void ForgetDropped() {
    for (const uint64_t id : dropped_) {
      waits_.Forget(id);
      const auto it = connections_.find(id);
      // Closing is not enough while a child that is being started still holds the descriptor.
      epoll_ctl(poller_.get(), EPOLL_CTL_DEL, it->second->socket.get(), nullptr);
      connections_.erase(it);
    }
    dropped_.clear();
  }

  void HandleEvent(uint64_t id, uint32_t events) {
    if (id == kWakeId) return TakeAdopted();
    if (id == kListenerId) return AcceptStrangers();
    const auto it = connections_.find(id);
    if (it == connections_.end()) return;
    Connection& connection = *it->second;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) ReadRequests(connection);
    if ((events & EPOLLOUT) != 0) Flush(connection);
  }

  void Poll(int operation, int fd, uint64_t id, uint32_t events) {
    epoll_event event = {};
    event.events = events;
    event.data.u64 = id;
    if (epoll_ctl(poller_.get(), operation, fd, &event) != 0) {
      throw ResourceExhaustedError("store: epoll_ctl: " + ErrnoText(errno));
    }
  }

  // Strangers that there is no room for wait in the kernel.
  void WatchListener() {
    if (!listener_.valid()) return;
    const bool watch = accept_again_.Expired() && HasRoom();
    if (watch == watching_listener_) return;
    watching_listener_ = watch;
    Poll(EPOLL_CTL_MOD, listener_.get(), kListenerId, watch ? uint32_t{EPOLLIN} : 0);
  }

  bool HasRoom() const {
    return strangers_.size() < static_cast<size_t>(kMaxStoreStrangers) ||
           strangers_.begin()->second->patience.Expired();
  }

  Deadline NextDeadline() const {
    Deadline next = waits_.NextDeadline();
    if (!accept_again_.Expired()) next = std::min(next, accept_again_);
    // The one that came first is the first to be late.
    if (!strangers_.empty()) {
      const Connection& oldest = *strangers_.begin()->second;
      next = std::min(next, oldest.handshake_deadline);
      if (!HasRoom()) next = std::min(next, oldest.patience);
    }
    return next;
  }

  Connection* Add(UniqueFd fd) {
    auto connection = std::make_unique<Connection>(next_id_++, std::move(fd));
    try {
      Poll(EPOLL_CTL_ADD, connection->socket.get(), connection->id, EPOLLIN);
    } catch (const Error&) {
      return nullptr;  // the kernel has no memory for it: the client tries again
    }
    Connection* const added = connection.get();
    connections_.emplace(added->id, std::move(connection));
    return added;
  }

  void Drop(Connection& connection) {
    if (connection.dropped) return;
    connection.dropped = true;
    strangers_.erase(connection.id);
    dropped_.push_back(connection.id);
  }

  void TakeAdopted() {
    uint64_t count = 0;
    while (read(wake_.get(), &count, sizeof(count)) < 0 && errno == EINTR) {
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (UniqueFd& fd : adopted_) {
      if (Connection* connection = Add(std::move(fd))) Trust(*connection);
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
      if (strangers_.size() >= static_cast<size_t>(kMaxStoreStrangers)) {
        Drop(*strangers_.begin()->second);
      }
      SetKeepAlive(fd.get());
      Connection* connection = Add(std::move(fd));
      if (connection == nullptr) continue;
      connection->handshake_deadline = Deadline::After(handshake_timeout_);
      strangers_.emplace(connection->id, connection);
    }
  }

  void Trust(Connection& connection) {
    connection.authenticated = true;
    connection.frames.set_max_frame_bytes(kMaxStoreFrameBytes);
    strangers_.erase(connection.id);
  }

  void ReadRequests(Connection& connection) {
    if (connection.dropped) return;
    if (!connection.frames.ReadFrom(connection.socket.get())) Drop(connection);
    StoreRequest request;
    while (!connection.dropped && connection.frames.Next(&request)) Handle(connection, request);
    if (connection.frames.broken()) Drop(connection);
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
      return Drop(connection);
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
    Drop(connection);
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
        AnswerWaits(keys[0]);
        return true;
      case StoreRequest::ADD:
        response->set_number(AddToStoreValue(values_, keys[0], request.delta()));
        AnswerWaits(keys[0]);
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
    const Deadline deadline = request.timeout_ms() < 0
                                  ? Deadline::Infinite()
                                  : Deadline::After(absl::Milliseconds(request.timeout_ms()));
    if (waits_.Add({connection.id, request.id(), keys, deadline}, values_)) return false;
    if (keys.size() == 1) response->set_value(values_[keys[0]]);
    return true;
  }

  // Those that `key` was the last one missing for.
  void AnswerWaits(const std::string& key) {
    waits_.KeyArrived(key, values_, [this](const StoreWait& wait) {
      StoreResponse response;
      response.set_id(wait.request);
      if (wait.keys.size() == 1) response.set_value(values_[wait.keys[0]]);
      Answer(*connections_.at(wait.connection), response);
    });
  }

  void Expire() {
    while (!strangers_.empty() && strangers_.begin()->second->handshake_deadline.Expired()) {
      Drop(*strangers_.begin()->second);
    }
    waits_.Expire([this](const StoreWait& wait) {
      StoreResponse response;
      response.set_id(wait.request);
      response.set_code(static_cast<int32_t>(absl::StatusCode::kDeadlineExceeded));
      for (const std::string& key : MissingKeys(values_, wait.keys)) response.add_missing(key);
      Answer(*connections_.at(wait.connection), response);
    });
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
      return Drop(connection);
    }
    const bool awaits_room = !connection.unsent.empty();
    if (awaits_room == connection.awaits_room) return;
    connection.awaits_room = awaits_room;
    Poll(EPOLL_CTL_MOD, connection.socket.get(), connection.id,
         awaits_room ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }

  const std::string token_;
  const absl::Duration handshake_timeout_;
  UniqueFd wake_;
  UniqueFd poller_;
  UniqueFd listener_;
  bool watching_listener_ = true;
  int port_ = 0;
  Deadline accept_again_ = Deadline::After(absl::ZeroDuration());
  StoreValues values_;
  StoreWaits waits_;
  uint64_t next_id_ = kFirstConnectionId;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::map<uint64_t, Connection*> strangers_;  // those that have proved nothing yet
  std::vector<uint64_t> dropped_;

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
