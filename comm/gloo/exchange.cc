// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/exchange.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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
#include "absl/types/span.h"
#include "gloo/rendezvous/store.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/tcp/loop.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/comm/socket.h"

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

// Runs the starts of pieces on the device's thread.
class Exchange::Starter final : public ::gloo::transport::tcp::Handler {
 public:
  using Piece = Pieces::Piece;

  explicit Starter(std::shared_ptr<::gloo::transport::tcp::Device> device)
      : device_(std::move(device)), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!wake_.valid()) throw ResourceExhaustedError(absl::StrCat("eventfd: ", ErrnoText(errno)));
    device_->registerDescriptor(wake_.get(), EPOLLIN, this);
  }
  // Waits for a running handleEvents.
  ~Starter() override {
    device_->unregisterDescriptor(wake_.get(), this);
    // ThreadSanitizer does not see how Gloo's threads wait for each other.
    std::lock_guard<std::mutex> run_lock(run_mutex_);
    std::lock_guard<std::mutex> lock(mutex_);
  }

  void Start(absl::Span<const std::shared_ptr<Piece>> pieces) {
    bool first = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      first = queue_.empty();
      for (const std::shared_ptr<Piece>& piece : pieces) {
        if (piece != nullptr) queue_.push_back(piece);
      }
      first = first && !queue_.empty();
    }
    const uint64_t one = 1;
    if (first) (void)!write(wake_.get(), &one, sizeof(one));
  }

  // None of these is started any more when it returns.
  void Cancel(absl::Span<const std::shared_ptr<Piece>> pieces) {
    std::lock_guard<std::mutex> run_lock(run_mutex_);
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(queue_, [&](const std::shared_ptr<Piece>& queued) {
      return std::find(pieces.begin(), pieces.end(), queued) != pieces.end();
    });
  }

  void handleEvents(int) override {
    uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof(count));
    std::lock_guard<std::mutex> run_lock(run_mutex_);
    std::vector<std::shared_ptr<Piece>> pieces;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      pieces.swap(queue_);
    }
    for (const std::shared_ptr<Piece>& piece : pieces) StartOne(*piece);
  }

 private:
  static void StartOne(Piece& piece) {
    try {
      for (::gloo::transport::UnboundBuffer* buffer :
           {piece.buffer.get(), piece.sum_buffer.get()}) {
        if (buffer == nullptr) continue;
        if (piece.sends) {
          buffer->send(piece.peer, piece.slot);
        } else {
          buffer->recv(piece.peer, piece.slot);
        }
      }
    } catch (const std::exception& error) {
      piece.error = error.what();
      piece.failed.store(true, std::memory_order_release);
      Pieces::Abort(piece);
    }
  }

  const std::shared_ptr<::gloo::transport::tcp::Device> device_;
  const UniqueFd wake_;
  std::mutex run_mutex_;  // held while pieces are started; taken before the other
  std::mutex mutex_;
  std::vector<std::shared_ptr<Piece>> queue_;
};

Exchange::Exchange(GlooConnections connections, Control* control)
    : connections_(std::move(connections)), control_(*control) {
  if (connections_.device != nullptr) starter_ = std::make_unique<Starter>(connections_.device);
}

Exchange::~Exchange() = default;

GlooConnections ConnectGloo(Store& store, const std::string& key, const std::string& address,
                            int rank, int size, Deadline deadline) {
  // The device's thread inherits the mask of this one.
  sigset_t before, broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
  const absl::Cleanup restore = [&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); };
  try {
    GlooStore gloo_store(store, absl::StrCat(key, "/gloo"), deadline);
    std::shared_ptr<::gloo::transport::Device> device =
        ::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr(address.c_str()));
    auto context = std::make_shared<::gloo::rendezvous::Context>(rank, size);
    // Gloo waits five times as long for a connection.
    context->setTimeout(ToMilliseconds(deadline) / 5 + milliseconds(1));
    context->connectFullMesh(gloo_store, device);
    return {std::static_pointer_cast<::gloo::transport::tcp::Device>(device), context};
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
  const bool given_up = std::any_of(pieces_.begin(), pieces_.end(),
                                    [](const auto& piece) { return piece != nullptr; });
  if (given_up) exchange_.starter_->Cancel(pieces_);
  std::lock_guard<std::mutex> lock(exchange_.mutex_);
  exchange_.active_.erase(this);
}

int Pieces::Send(int peer, const void* from, int64_t bytes) {
  if (bytes > 0) {
    exchange_.pieces_sent_.fetch_add(1, std::memory_order_relaxed);
    exchange_.bytes_sent_.fetch_add(is_data_ ? bytes : 0, std::memory_order_relaxed);
  }
  return Add(peer, /*sends=*/true, const_cast<void*>(from), bytes);
}

int Pieces::Receive(int peer, void* to, int64_t bytes) {
  return Add(peer, /*sends=*/false, to, bytes);
}

int Pieces::Add(int peer, bool sends, void* memory, int64_t bytes) {
  std::shared_ptr<Piece> piece;
  if (bytes > 0) {
    piece = std::make_shared<Piece>();
    piece->buffer =
        exchange_.connections_.context->createUnboundBuffer(memory, static_cast<size_t>(bytes));
    piece->peer = peer;
    piece->slot = slot_;
    piece->sends = sends;
    piece->bytes = bytes;
    piece->memory = memory;
    if (is_data_ && exchange_.verifies_) {
      piece->sum_buffer =
          exchange_.connections_.context->createUnboundBuffer(&piece->sum, sizeof(piece->sum));
    }
  }
  std::lock_guard<std::mutex> lock(exchange_.mutex_);
  pieces_.push_back(std::move(piece));
  return static_cast<int>(pieces_.size()) - 1;
}

void Pieces::Start() {
  if (started_ == pieces_.size() || exchange_.starter_ == nullptr) return;
  // Interrupt() sees them all by now.
  exchange_.control_.ThrowIfInterrupted();
  SealNew();
  exchange_.starter_->Start(absl::MakeConstSpan(pieces_).subspan(started_));
  started_ = pieces_.size();
}

void Pieces::SealNew() {
  const auto added = absl::MakeConstSpan(pieces_).subspan(started_);
  Piece* first = nullptr;
  for (const std::shared_ptr<Piece>& piece : added) {
    if (piece == nullptr || !piece->sends || !is_data_) continue;
    if (first == nullptr) first = piece.get();
    if (piece->sum_buffer != nullptr) {
      piece->sum = Hash64(piece->memory, static_cast<size_t>(piece->bytes));
    }
  }
  if (first == nullptr || !exchange_.corrupt_next_.exchange(false)) return;
  const char* const data = static_cast<const char*>(first->memory);
  first->damaged.assign(data, data + first->bytes);
  first->damaged[0] ^= 1;
  std::lock_guard<std::mutex> lock(exchange_.mutex_);  // of Interrupt()
  first->buffer = exchange_.connections_.context->createUnboundBuffer(first->damaged.data(),
                                                                      first->damaged.size());
}

void Pieces::Wait(Piece& piece, ::gloo::transport::UnboundBuffer& buffer) {
  bool done = false;
  while (!done) {
    exchange_.control_.ThrowIfInterrupted();
    if (piece.failed.load(std::memory_order_acquire)) FailUnreachable(piece.peer, piece.error);
    try {
      const milliseconds timeout = ToMilliseconds(deadline_);
      done = piece.sends ? buffer.waitSend(timeout) : buffer.waitRecv(timeout);
    } catch (const std::exception& error) {
      if (deadline_.Expired()) FailLate(piece.peer);
      FailUnreachable(piece.peer, error.what());
    }
  }
}

void Pieces::Await(int number) {
  Start();
  std::shared_ptr<Piece>& slot = pieces_[static_cast<size_t>(number)];
  if (slot == nullptr) return;
  Piece& piece = *slot;
  Wait(piece, *piece.buffer);
  if (piece.sum_buffer != nullptr) {
    Wait(piece, *piece.sum_buffer);
    if (!piece.sends && Hash64(piece.memory, static_cast<size_t>(piece.bytes)) != piece.sum) {
      exchange_.control_.FailAndThrow(absl::StatusCode::kDataLoss,
                                      describe_(piece.peer, Trouble::kDamaged));
    }
  }
  if (!piece.sends && is_data_) {
    exchange_.bytes_received_.fetch_add(piece.bytes, std::memory_order_relaxed);
  }
  std::lock_guard<std::mutex> lock(exchange_.mutex_);
  slot.reset();
}

void Pieces::AwaitAll() {
  for (size_t i = 0; i < pieces_.size(); ++i) Await(static_cast<int>(i));
}

void Pieces::FailLate(int peer) {
  exchange_.control_.FailAndThrow(absl::StatusCode::kDeadlineExceeded,
                                  describe_(peer, Trouble::kLate));
}

void Pieces::FailUnreachable(int peer, absl::string_view reason) {
  const int peers[] = {peer};
  exchange_.control_.FailUnexplained(peers, absl::StatusCode::kUnavailable,
                                     absl::StrCat("rank ", peer, " cannot be reached: ", reason));
}

void Pieces::Abort(Piece& piece) {
  for (::gloo::transport::UnboundBuffer* buffer : {piece.buffer.get(), piece.sum_buffer.get()}) {
    if (buffer == nullptr) continue;
    if (piece.sends) {
      buffer->abortWaitSend();
    } else {
      buffer->abortWaitRecv();
    }
  }
}

void Pieces::Interrupt() {
  for (const std::shared_ptr<Piece>& piece : pieces_) {
    if (piece != nullptr) Abort(*piece);
  }
}

}  // namespace lockstep::comm::gloo
