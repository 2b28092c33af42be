// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/store.pb.h"
#include "lockstep/comm/store_frames.h"
#include "lockstep/comm/store_values.h"

namespace lockstep::comm {
namespace {

// The server answers a wait that it has given up on; only a server that is stuck makes the client
// run into its own, slightly later deadline.
constexpr absl::Duration kServerSlack = absl::Milliseconds(250);

Deadline Later(Deadline deadline, absl::Duration by) {
  return deadline.IsInfinite() ? deadline : Deadline::After(deadline.Remaining() + by);
}

}  // namespace

// One connection. Calls of several threads take turns, each within its own deadline.
class StoreClient::Impl {
 public:
  Impl(UniqueFd socket, std::string description)
      : socket_(std::move(socket)), description_(std::move(description)) {}

  const std::string& description() const { return description_; }

  // Throws the response's error.
  StoreResponse Call(StoreRequest request, Deadline deadline) {
    const Turn turn(this, deadline);
    request.set_id(++last_id_);
    const int64_t remaining =
        deadline.IsInfinite() ? -1 : absl::ToInt64Milliseconds(deadline.Remaining());
    request.set_timeout_ms(remaining);
    Send(request, deadline);
    const std::vector<std::string> keys(request.keys().begin(), request.keys().end());
    StoreResponse response = Receive(request.id(), keys, Later(deadline, kServerSlack));
    const auto code = static_cast<absl::StatusCode>(response.code());
    if (code == absl::StatusCode::kDeadlineExceeded) {
      throw DeadlineExceededError(
          MissingKeysText({response.missing().begin(), response.missing().end()}, description_));
    }
    if (code != absl::StatusCode::kOk) throw Error(code, response.message());
    return response;
  }

 private:
  class Turn {
   public:
    Turn(Impl* impl, Deadline deadline) : impl_(impl) {
      std::unique_lock<std::mutex> lock(impl->mutex_);
      const auto free = [impl] { return !impl->busy_; };
      if (deadline.IsInfinite()) {
        impl->freed_.wait(lock, free);
      } else if (!impl->freed_.wait_until(lock, deadline.ToTimePoint(), free)) {
        throw DeadlineExceededError(absl::StrCat("store: another thread's call on the ",
                                                 impl->description_, " took too long"));
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

  [[noreturn]] void ThrowGone() {
    socket_.reset();
    throw UnavailableError(absl::StrCat("store: the connection to the ", description_,
                                        " has ended (server gone, or token refused)"));
  }

  void Send(const StoreRequest& request, Deadline deadline) {
    if (!socket_.valid()) ThrowGone();
    size_t done = 0;
    const IoResult result = SendAll(socket_.get(), EncodeFrame(request), deadline, &done);
    if (result == IoResult::kOk) return;
    // A frame cut in the middle cannot be continued: the connection is lost.
    if (result == IoResult::kClosed || done > 0) ThrowGone();
    throw DeadlineExceededError(absl::StrCat("store: the ", description_, " takes no requests"));
  }

  // Answers to earlier requests, given up on by their callers, are skipped. What has arrived of a
  // frame is kept, so that the next call continues where this one stopped.
  StoreResponse Receive(uint64_t id, const std::vector<std::string>& keys, Deadline deadline) {
    for (;;) {
      StoreResponse response;
      while (frames_.Next(&response)) {
        if (response.id() == id) return response;
      }
      if (frames_.broken()) ThrowGone();
      if (!WaitReadable(socket_.get(), deadline)) {
        throw DeadlineExceededError(MissingKeysText(keys, description_));
      }
      if (!frames_.ReadFrom(socket_.get())) ThrowGone();
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
  UniqueFd socket = ConnectTcp(options.address, options.port, deadline);
  impl_ = std::make_unique<Impl>(std::move(socket),
                                 absl::StrCat("store at ", options.address, ":", options.port));
  StoreRequest hello;
  hello.set_operation(StoreRequest::HELLO);
  hello.set_token(options.token);
  impl_->Call(hello, deadline);
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
  impl_->Call(std::move(request), deadline);
}

std::string StoreClient::Get(absl::string_view key, Deadline deadline) {
  CheckStoreKey(key);
  StoreRequest request;
  request.set_operation(StoreRequest::WAIT);
  request.add_keys(std::string(key));
  return impl_->Call(std::move(request), deadline).value();
}

void StoreClient::Wait(const std::vector<std::string>& keys, Deadline deadline) {
  StoreRequest request;
  request.set_operation(StoreRequest::WAIT);
  for (const std::string& key : keys) {
    CheckStoreKey(key);
    request.add_keys(key);
  }
  impl_->Call(std::move(request), deadline);
}

int64_t StoreClient::Add(absl::string_view key, int64_t delta, Deadline deadline) {
  CheckStoreKey(key);
  StoreRequest request;
  request.set_operation(StoreRequest::ADD);
  request.add_keys(std::string(key));
  request.set_delta(delta);
  return impl_->Call(std::move(request), deadline).number();
}

bool StoreClient::Delete(absl::string_view key, Deadline deadline) {
  CheckStoreKey(key);
  StoreRequest request;
  request.set_operation(StoreRequest::DELETE);
  request.add_keys(std::string(key));
  return impl_->Call(std::move(request), deadline).number() != 0;
}

}  // namespace lockstep::comm
