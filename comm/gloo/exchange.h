// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Pieces of memory that travel between ranks over Gloo's TCP connections: the one thing that this
// backend uses Gloo for.
//
//   Exchange exchange(ConnectGloo(...), &control);
//   Pieces pieces(&exchange, slot, deadline, describe);
//   const int theirs = pieces.Receive(peer, to, bytes);
//   const int mine = pieces.Send(peer, from, bytes);
//   pieces.Await(theirs);
//   pieces.AwaitAll();
//
// Both ends know the sizes, and whether checksums travel: Gloo would end the process if they
// differed. A wait ends at once when
// the group fails or this rank stops; afterwards the connections are not used again.
#ifndef LOCKSTEP_COMM_GLOO_EXCHANGE_H_
#define LOCKSTEP_COMM_GLOO_EXCHANGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gloo/rendezvous/context.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/unbound_buffer.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/gloo/control.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm::gloo {

// Connections between all ranks, and the thread that serves them.
struct GlooConnections {
  std::shared_ptr<::gloo::transport::tcp::Device> device;
  std::shared_ptr<::gloo::Context> context;
};
// `address`: of this host. Throws Unavailable, DeadlineExceeded.
GlooConnections ConnectGloo(Store& store, const std::string& key, const std::string& address,
                            int rank, int size, Deadline deadline);

class Pieces;

// Thread-safe.
//
// Pieces are started on Gloo's own thread. Gloo would allow any: but its thread polls, without
// pause, a connection that another thread is just using, which on a busy machine takes the
// processor from that other thread; and what it writes to a connection that has ended raises
// SIGPIPE in the writing thread, which its own has blocked.
class Exchange {
 public:
  // `connections` may be empty where there is only one rank.
  Exchange(GlooConnections connections, Control* control);
  // REQUIRES that no Pieces exist.
  ~Exchange();

  // Whether each piece of data is followed by its checksum, which the receiver compares: the same
  // on all ranks. Before the first piece.
  void set_verifies_payload(bool verifies) { verifies_ = verifies; }
  // For tests: the next piece of data that this rank sends is damaged on the way.
  void CorruptNext() { corrupt_next_.store(true); }

  // Ends all waiting. For Control::OnInterrupt.
  void Interrupt();

  // So far, on this rank.
  int64_t pieces_sent() const { return pieces_sent_.load(std::memory_order_relaxed); }
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  int64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }

 private:
  friend class Pieces;
  class Starter;

  const GlooConnections connections_;
  Control& control_;
  std::unique_ptr<Starter> starter_;
  bool verifies_ = false;
  std::atomic<bool> corrupt_next_{false};
  std::atomic<int64_t> pieces_sent_{0};
  std::atomic<int64_t> bytes_sent_{0};
  std::atomic<int64_t> bytes_received_{0};

  std::mutex mutex_;
  std::set<Pieces*> active_;
};

// What one collective, or one direction of a pair of ranks, has under way. Pieces of a slot meet in
// the order in which the two ends started them; pieces without bytes do not travel. Used by one
// thread.
class Pieces {
 public:
  // What to say when `peer` is late, or its data is damaged.
  enum class Trouble { kLate, kDamaged };
  using Describe = std::function<std::string(int peer, Trouble trouble)>;

  // `is_data`: whether bytes count in the traffic, and are verified if any are.
  Pieces(Exchange* exchange, uint64_t slot, Deadline deadline, Describe describe,
         bool is_data = true);
  // What is still under way is given up: its memory is not touched afterwards.
  ~Pieces();
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  // Number of the piece, for Await. The memory is used until then. It starts to travel when
  // Start or Await is called next.
  int Send(int peer, const void* from, int64_t bytes);
  int Receive(int peer, void* to, int64_t bytes);
  // Lets what has been added travel, without waiting for it.
  void Start();
  // Throws as Control does, Unavailable when the connection has ended, and DeadlineExceeded; all of
  // them are the group's error then.
  void Await(int piece);
  // What has been awaited before is passed over.
  void AwaitAll();

 private:
  friend class Exchange;
  struct Piece {
    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
    // Of the checksum, which travels behind the data in the same slot; null: it has none.
    std::unique_ptr<::gloo::transport::UnboundBuffer> sum_buffer;
    uint64_t sum = 0;
    void* memory = nullptr;
    std::vector<char> damaged;  // travels instead of `memory`, for a test
    int peer = 0;
    uint64_t slot = 0;
    bool sends = false;
    int64_t bytes = 0;
    std::string error;  // of its start; written before the wait is ended
    std::atomic<bool> failed{false};
  };
  int Add(int peer, bool sends, void* memory, int64_t bytes);
  // What is about to be sent gets its checksum, and the damage that a test wants.
  void SealNew();
  void Wait(Piece& piece, ::gloo::transport::UnboundBuffer& buffer);
  static void Abort(Piece& piece);
  [[noreturn]] void FailLate(int peer);
  [[noreturn]] void FailUnreachable(int peer, absl::string_view reason);
  void Interrupt();

  Exchange& exchange_;
  const uint64_t slot_;
  const Deadline deadline_;
  const Describe describe_;
  const bool is_data_;
  // Null: nothing to wait for any more. Changed under Exchange::mutex_.
  std::vector<std::shared_ptr<Piece>> pieces_;
  size_t started_ = 0;  // the first so many are
};

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_EXCHANGE_H_
