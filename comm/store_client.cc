// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
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

// The server answers a wait that it has given up on; only a server that is stuck makes the client
// run into its own, slightly later deadline.
constexpr absl::Duration kServerSlack = absl::Milliseconds(250);

Deadline Later(Deadline deadline, absl::Duration by) {
  return deadline.IsInfinite() ? deadline : Deadline::After(deadline.Remaining() + by);
}

// What errors say about a call: "store: Get of key address/1".
class CallText {
 public:
  CallText(absl::string_view call, std::vector<std::string> keys)
      : call_(call), keys_(std::move(keys)) {}

  const std::string& call() const { return call_; }
  const std::vector<std::string>& keys() const { return keys_; }
  absl::Duration waited() const { return watch_.Elapsed(); }
  std::string Start() const {
    return absl::StrCat("store: ", call_, keys_.empty() ? "" : " of ",
                        keys_.empty() ? "" : KeysText(keys_));
  }
  std::string Waited() const { return WaitedText(watch_.Elapsed()); }

 private:
  std::string call_;
  std::vector<std::string> keys_;
  Stopwatch watch_;
};

}  // namespace

// One connection. A thread that awaits an answer reads from it, unless another one does already,
// and hands out what it finds; when it has its own, it leaves the reading to the next.
class StoreClient::Impl {
 public:
  Impl(UniqueFd socket, std::string description)
      : socket_(std::move(socket)), description_(std::move(description)) {}

  const std::string& description() const { return description_; }

  // Throws the response's error.
  StoreResponse Call(absl::string_view call, StoreRequest request, Deadline deadline) {
    const CallText text(call, {request.keys().begin(), request.keys().end()});
    StoreResponse response =
        Exchange(text, std::move(request), deadline, Later(deadline, kServerSlack));
    const auto code = static_cast<absl::StatusCode>(response.code());
    if (code == absl::StatusCode::kDeadlineExceeded) {
      throw DeadlineExceededError(
          MissingKeysText(call, {response.missing().begin(), response.missing().end()},
                          description_, text.waited()));
    }
    if (code != absl::StatusCode::kOk) throw Error(code, response.message());
    return response;
  }

  // Proves both ends' knowledge of the token to each other (store_token.h). False when the
  // connection ended before the server had judged ours.
  bool Handshake(const std::string& token, Deadline deadline) {
    const CallText text("handshake", {});
    StoreRequest hello;
    hello.set_operation(StoreRequest::HELLO);
    hello.set_nonce(NewNonce());
    StoreRequest prove;
    StoreResponse judged;
    try {
      const std::string theirs = Exchange(text, hello, deadline, deadline).nonce();
      prove.set_operation(StoreRequest::PROVE);
      prove.set_nonce(theirs);
      prove.set_proof(ClientProof(token, hello.nonce(), theirs));
      judged = Exchange(text, prove, deadline, deadline);
    } catch (const Error& error) {
      if (error.code() != absl::StatusCode::kUnavailable) throw;
      return false;
    }
    if (judged.code() != 0) {
      throw InvalidArgumentError(
          absl::StrCat("store: the ", description_, " refuses our token (",
                       token.empty() ? "none" : absl::StrCat(token.size(), " characters"),
                       "): give every rank the token that the store was started with"));
    }
    if (!SameProof(judged.proof(), ServerProof(token, hello.nonce(), prove.nonce()))) {
      throw UnavailableError(absl::StrCat("store: what answers as the ", description_,
                                          " does not know our token: is it another job's?"));
    }
    return true;
  }

 private:
  // A call under way.
  struct Pending {
    std::optional<StoreResponse> response;
    bool waits = false;  // on `changed`, while another thread reads
    std::condition_variable changed;
  };
  enum class State { kOpen, kGone, kNoStore };

  // Waits for `condition` on `changed`. False when the deadline passes.
  template <typename Condition>
  static bool WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                        Deadline deadline, const Condition& condition) {
    if (!deadline.IsInfinite()) return changed.wait_until(lock, deadline.ToTimePoint(), condition);
    changed.wait(lock, condition);
    return true;
  }

  StoreResponse Exchange(const CallText& text, StoreRequest request, Deadline send_by,
                         Deadline receive_by) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto has_place = [this] { return pending_.size() < kMaxStoreCallsInFlight; };
    if (!WaitUntil(lock, place_, send_by, has_place)) {
      throw DeadlineExceededError(absl::StrCat(text.Start(), ": ", kMaxStoreCallsInFlight,
                                               " other threads' calls on the ", description_,
                                               " took all of ", text.Waited()));
    }
    request.set_id(++last_id_);
    Pending pending;
    pending_.emplace(request.id(), &pending);
    const auto leave = absl::MakeCleanup([&] {
      pending_.erase(request.id());
      place_.notify_one();
      PassReadingOn();
    });
    Send(lock, text, &request, send_by);
    Receive(lock, text, pending, receive_by);
    return *std::move(pending.response);
  }

  void Send(std::unique_lock<std::mutex>& lock, const CallText& text, StoreRequest* request,
            Deadline deadline) {
    const auto throw_late = [&] {
      throw DeadlineExceededError(absl::StrCat(text.Start(), ": the ", description_,
                                               " took no request within ", text.Waited()));
    };
    if (!WaitUntil(lock, written_, deadline, [this] { return !writing_; })) throw_late();
    ThrowIfEnded(text);
    // Only now: what it has waited for its turn is not the server's to wait.
    request->set_timeout_ms(deadline.RemainingPollMilliseconds());
    const std::string frame = EncodeFrame(*request);
    writing_ = true;
    lock.unlock();
    size_t done = 0;
    const IoResult result = SendAll(socket_.get(), frame, deadline, &done);
    lock.lock();
    writing_ = false;
    written_.notify_all();  // the next may find that the connection has ended
    if (result == IoResult::kOk) return;
    // A frame cut in the middle cannot be continued: the connection is lost.
    if (result == IoResult::kClosed || done > 0) End(State::kGone);
    if (result == IoResult::kClosed) ThrowIfEnded(text);
    throw_late();
  }

  void Receive(std::unique_lock<std::mutex>& lock, const CallText& text, Pending& pending,
               Deadline deadline) {
    const auto throw_late = [&] {
      throw DeadlineExceededError(absl::StrCat(text.Start(), ": the ", description_,
                                               " did not answer within ", text.Waited()));
    };
    while (!pending.response.has_value()) {
      ThrowIfEnded(text);
      if (reading_) {
        pending.waits = true;
        const bool in_time = WaitUntil(lock, pending.changed, deadline, [&] {
          return pending.response.has_value() || !reading_ || state_ != State::kOpen;
        });
        pending.waits = false;
        if (!in_time) throw_late();
        continue;
      }
      reading_ = true;
      lock.unlock();
      const bool readable = WaitReadable(socket_.get(), deadline);
      lock.lock();
      reading_ = false;
      if (!readable) throw_late();
      HandOut();
    }
  }

  // Takes what has arrived. Answers to requests that were given up on are skipped; what has arrived
  // of a frame is kept.
  void HandOut() {
    if (!frames_.ReadFrom(socket_.get())) End(State::kGone);
    StoreResponse response;
    while (frames_.Next(&response)) {
      const auto it = pending_.find(response.id());
      if (it == pending_.end()) continue;
      it->second->response = std::move(response);
      it->second->changed.notify_one();
    }
    if (frames_.broken()) End(State::kNoStore);
  }

  // Called by one that has read, or may have been told to.
  void PassReadingOn() {
    if (reading_) return;
    for (const auto& [id, pending] : pending_) {
      if (pending->waits && !pending->response.has_value()) return pending->changed.notify_one();
    }
  }

  void End(State state) {
    if (state_ != State::kOpen) return;
    state_ = state;
    // Wakes whoever reads or writes. Closed with this object: others may use the number until then.
    shutdown(socket_.get(), SHUT_RDWR);
    for (const auto& [id, pending] : pending_) pending->changed.notify_one();
  }

  void ThrowIfEnded(const CallText& text) const {
    if (state_ == State::kGone) {
      throw UnavailableError(absl::StrCat(text.Start(), ": the connection to the ", description_,
                                          " has ended, after a wait of ", text.Waited(),
                                          ": the process that serves it has gone, or its host "
                                          "does not answer"));
    }
    if (state_ == State::kNoStore) {
      throw InvalidArgumentError(absl::StrCat(text.Start(), ": what answers as the ", description_,
                                              " is no store: is it another program's port?"));
    }
  }

  const UniqueFd socket_;
  const std::string description_;

  std::mutex mutex_;
  State state_ = State::kOpen;
  std::condition_variable place_;
  std::map<uint64_t, Pending*> pending_;
  uint64_t last_id_ = 0;
  bool writing_ = false;
  std::condition_variable written_;
  bool reading_ = false;
  FrameReader frames_{kMaxStoreFrameBytes};
};

StoreClient::StoreClient(const StoreClientOptions& options) {
  const Deadline deadline = Deadline::After(options.connect_timeout);
  const std::string description = absl::StrCat("store at ", options.address, ":", options.port);
  absl::Duration pause = absl::Milliseconds(5);
  for (int tries = 1;; ++tries) {
    UniqueFd socket = ConnectTcp(options.address, options.port, deadline);
    impl_ = std::make_unique<Impl>(std::move(socket), description);
    if (impl_->Handshake(options.token, deadline)) return;
    if (deadline.Expired()) {
      throw DeadlineExceededError(absl::StrCat(
          "store: the ", description, " ended ", tries, " connections without an answer within ",
          WaitedText(options.connect_timeout), ": is it another program's port?"));
    }
    absl::SleepFor(std::min(pause, deadline.Remaining()));
    pause = std::min(pause * 2, absl::Milliseconds(200));
  }
}

StoreClient::StoreClient(int socket, std::string description)
    : impl_(std::make_unique<Impl>(UniqueFd(socket), std::move(description))) {}

StoreClient::~StoreClient() = default;

std::string StoreClient::Describe() const { return impl_->description(); }

void StoreClient::Set(absl::string_view key, absl::string_view value, Deadline deadline) {
  CheckStoreKey(key);
  CheckStoreValue(key, value);
  StoreRequest request;
  request.set_operation(StoreRequest::SET);
  request.add_keys(std::string(key));
  request.set_value(std::string(value));
  impl_->Call("Set", std::move(request), deadline);
}

std::string StoreClient::Get(absl::string_view key, Deadline deadline) {
  CheckStoreKey(key);
  StoreRequest request;
  request.set_operation(StoreRequest::WAIT);
  request.add_keys(std::string(key));
  return impl_->Call("Get", std::move(request), deadline).value();
}

void StoreClient::Wait(const std::vector<std::string>& keys, Deadline deadline) {
  StoreRequest request;
  request.set_operation(StoreRequest::WAIT);
  for (const std::string& key : keys) {
    CheckStoreKey(key);
    request.add_keys(key);
  }
  impl_->Call("Wait", std::move(request), deadline);
}

int64_t StoreClient::Add(absl::string_view key, int64_t delta, Deadline deadline) {
  CheckStoreKey(key);
  StoreRequest request;
  request.set_operation(StoreRequest::ADD);
  request.add_keys(std::string(key));
  request.set_delta(delta);
  return impl_->Call("Add", std::move(request), deadline).number();
}

bool StoreClient::Delete(absl::string_view key, Deadline deadline) {
  CheckStoreKey(key);
  StoreRequest request;
  request.set_operation(StoreRequest::DELETE);
  request.add_keys(std::string(key));
  return impl_->Call("Delete", std::move(request), deadline).number() != 0;
}

}  // namespace lockstep::comm
