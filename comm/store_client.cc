// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

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

// One connection. Calls of several threads take turns, each within its own deadline.
class StoreClient::Impl {
 public:
  Impl(UniqueFd socket, std::string description)
      : socket_(std::move(socket)), description_(std::move(description)) {}

  const std::string& description() const { return description_; }

  // Throws the response's error.
  StoreResponse Call(absl::string_view call, StoreRequest request, Deadline deadline) {
    const CallText text(call, {request.keys().begin(), request.keys().end()});
    const Turn turn(this, text, deadline);
    request.set_timeout_ms(deadline.RemainingPollMilliseconds());
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
  class Turn {
   public:
    Turn(Impl* impl, const CallText& text, Deadline deadline) : impl_(impl) {
      std::unique_lock<std::mutex> lock(impl->mutex_);
      const auto free = [impl] { return !impl->busy_; };
      if (deadline.IsInfinite()) {
        impl->freed_.wait(lock, free);
      } else if (!impl->freed_.wait_until(lock, deadline.ToTimePoint(), free)) {
        throw DeadlineExceededError(absl::StrCat(text.Start(), ": another thread's call on the ",
                                                 impl->description_, " took all of ",
                                                 text.Waited()));
      }
      impl->busy_ = true;
    }
    ~Turn() {
      std::lock_guard<std::mutex> lock(impl_->mutex_);
      impl_->busy_ = false;
      impl_->freed_.notify_one();
    }

   private:
    Impl* impl_;
  };

  StoreResponse Exchange(const CallText& text, StoreRequest request, Deadline send_by,
                         Deadline receive_by) {
    request.set_id(++last_id_);
    Send(text, request, send_by);
    return Receive(text, request.id(), receive_by);
  }

  [[noreturn]] void ThrowGone(const CallText& text) {
    socket_.reset();
    throw UnavailableError(absl::StrCat(text.Start(), ": the connection to the ", description_,
                                        " has ended, after a wait of ", text.Waited(),
                                        ": the process that serves it has gone"));
  }

  void Send(const CallText& text, const StoreRequest& request, Deadline deadline) {
    if (!socket_.valid()) ThrowGone(text);
    size_t done = 0;
    const IoResult result = SendAll(socket_.get(), EncodeFrame(request), deadline, &done);
    if (result == IoResult::kOk) return;
    // A frame cut in the middle cannot be continued: the connection is lost.
    if (done > 0) socket_.reset();
    if (result == IoResult::kClosed) ThrowGone(text);
    throw DeadlineExceededError(absl::StrCat(text.Start(), ": the ", description_,
                                             " took no request within ", text.Waited()));
  }

  // Answers to earlier requests, given up on by their callers, are skipped. What has arrived of a
  // frame is kept, so that the next call continues where this one stopped.
  StoreResponse Receive(const CallText& text, uint64_t id, Deadline deadline) {
    for (;;) {
      StoreResponse response;
      while (frames_.Next(&response)) {
        if (response.id() == id) return response;
      }
      if (frames_.broken()) {
        socket_.reset();
        throw InvalidArgumentError(absl::StrCat(text.Start(), ": what answers as the ",
                                                description_,
                                                " is no store: is it another program's port?"));
      }
      if (!WaitReadable(socket_.get(), deadline)) {
        throw DeadlineExceededError(absl::StrCat(text.Start(), ": the ", description_,
                                                 " did not answer within ", text.Waited()));
      }
      if (!frames_.ReadFrom(socket_.get())) ThrowGone(text);
    }
  }

  std::mutex mutex_;
  std::condition_variable freed_;
  bool busy_ = false;
  UniqueFd socket_;
  std::string description_;
  FrameReader frames_{kMaxStoreFrameBytes};
  uint64_t last_id_ = 0;
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
