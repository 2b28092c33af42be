// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/exchange.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gloo/rendezvous/store.h"
#include "gloo/transport/tcp/device.h"
#include "lockstep/base/error.h"

namespace lockstep::comm::gloo {
namespace {

using std::chrono::milliseconds;

// Gloo adds it to the clock's time, which must not overflow.
constexpr absl::Duration kLongest = absl::Hours(24 * 365);

milliseconds ToMilliseconds(Deadline deadline) {
  const absl::Duration left = std::min(deadline.Remaining(), kLongest);
  return milliseconds(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

// The store of the group, for the addresses of Gloo's connections.
class GlooStore final : public ::gloo::rendezvous::Store {
 public:
  GlooStore(comm::Store& store, std::string prefix, Deadline deadline)
      : store_(store), prefix_(std::move(prefix)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.Set(Key(key), absl::string_view(data.data(), data.size()), deadline_);
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.Get(Key(key), deadline_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    std::vector<std::string> prefixed;
    for (const std::string& key : keys) prefixed.push_back(Key(key));
    store_.Wait(prefixed, deadline_);
  }
  void wait(const std::vector<std::string>& keys, const milliseconds&) override { wait(keys); }

 private:
  std::string Key(const std::string& key) const { return absl::StrCat(prefix_, "/", key); }

  comm::Store& store_;
  const std::string prefix_;
  const Deadline deadline_;
};

}  // namespace

void BlockBrokenPipeSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

std::shared_ptr<::gloo::Context> ConnectGloo(Store& store, const std::string& key,
                                             const std::string& address, int rank, int size,
                                             Deadline deadline) {
  // The device's thread inherits the mask of this one.
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  BlockBrokenPipeSignals();
  const absl::Cleanup restore = [&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); };
  try {
    GlooStore gloo_store(store, absl::StrCat(key, "/gloo"), deadline);
    std::shared_ptr<::gloo::transport::Device> device =
        ::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr(address.c_str()));
    auto context = std::make_shared<::gloo::rendezvous::Context>(rank, size);
    // Gloo waits five times as long for a connection.
    context->setTimeout(ToMilliseconds(deadline) / 5 + milliseconds(1));
    context->connectFullMesh(gloo_store, device);
    return context;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text =
        absl::StrCat("connecting to the other ranks from ", address, ": ", error.what());
    if (deadline.Expired()) throw DeadlineExceededError(text);
    throw UnavailableError(text);
  }
}

void Exchange::Interrupt() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Pieces* pieces : active_) pieces->Interrupt();
}

Pieces::Pieces(Exchange* exchange, uint64_t slot, Deadline deadline, Describe describe,
               bool is_data)
    : exchange_(*exchange),
      slot_(slot),
      deadline_(deadline),
      describe_(std::move(describe)),
      is_data_(is_data) {
  std::lock_guard<std::mutex> lock(exchange_.mutex_);
  exchange_.active_.insert(this);
}

Pieces::~Pieces() {
  std::lock_guard<std::mutex> lock(exchange_.mutex_);
  exchange_.active_.erase(this);
}

int Pieces::Send(int peer, const void* from, int64_t bytes) {
  if (bytes > 0) {
    exchange_.pieces_sent_.fetch_add(1, std::memory_order_relaxed);
    exchange_.bytes_sent_.fetch_add(is_data_ ? bytes : 0, std::memory_order_relaxed);
  }
  return Start(peer, /*sends=*/true, const_cast<void*>(from), bytes);
}

int Pieces::Receive(int peer, void* to, int64_t bytes) {
  return Start(peer, /*sends=*/false, to, bytes);
}

int Pieces::Start(int peer, bool sends, void* memory, int64_t bytes) {
  const int number = static_cast<int>(pieces_.size());
  Piece piece;
  piece.peer = peer;
  piece.sends = sends;
  piece.bytes = bytes;
  ::gloo::transport::UnboundBuffer* buffer = nullptr;
  {
    std::lock_guard<std::mutex> lock(exchange_.mutex_);
    if (bytes > 0) {
      piece.buffer = exchange_.context_->createUnboundBuffer(memory, static_cast<size_t>(bytes));
      buffer = piece.buffer.get();
    }
    pieces_.push_back(std::move(piece));
  }
  if (buffer == nullptr) return number;
  // Looked at after the buffer can be seen by Interrupt().
  exchange_.control_.ThrowIfInterrupted();
  try {
    if (sends) {
      buffer->send(peer, slot_);
    } else {
      buffer->recv(peer, slot_);
    }
  } catch (const std::exception& error) {
    FailUnreachable(peer, error.what());
  }
  return number;
}

void Pieces::Await(int number) {
  Piece& piece = pieces_[static_cast<size_t>(number)];
  if (piece.buffer == nullptr) return;
  bool done = false;
  while (!done) {
    exchange_.control_.ThrowIfInterrupted();
    try {
      const milliseconds timeout = ToMilliseconds(deadline_);
      done = piece.sends ? piece.buffer->waitSend(timeout) : piece.buffer->waitRecv(timeout);
    } catch (const std::exception& error) {
      if (deadline_.Expired()) FailLate(piece.peer);
      FailUnreachable(piece.peer, error.what());
    }
  }
  if (!piece.sends && is_data_) {
    exchange_.bytes_received_.fetch_add(piece.bytes, std::memory_order_relaxed);
  }
  std::lock_guard<std::mutex> lock(exchange_.mutex_);
  piece.buffer.reset();
}

void Pieces::AwaitAll() {
  for (size_t i = 0; i < pieces_.size(); ++i) Await(static_cast<int>(i));
}

void Pieces::FailLate(int peer) {
  exchange_.control_.FailAndThrow(absl::StatusCode::kDeadlineExceeded, describe_(peer));
}

void Pieces::FailUnreachable(int peer, absl::string_view reason) {
  const int peers[] = {peer};
  exchange_.control_.FailUnexplained(peers, absl::StatusCode::kUnavailable,
                                     absl::StrCat("rank ", peer, " cannot be reached: ", reason));
}

void Pieces::Interrupt() {
  for (const Piece& piece : pieces_) {
    if (piece.buffer == nullptr) continue;
    if (piece.sends) {
      piece.buffer->abortWaitSend();
    } else {
      piece.buffer->abortWaitRecv();
    }
  }
}

}  // namespace lockstep::comm::gloo
