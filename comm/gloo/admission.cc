// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/admission.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/store_token.h"

namespace lockstep::comm::gloo {
namespace {

constexpr size_t kProofBytes = 32;
// For all that one connection has to say: a rank needs one exchange.
constexpr absl::Duration kPatience = absl::Seconds(10);
// Guests beside those who may be ranks, all of which may come at once.
constexpr size_t kMostStrangers = 128;

// The first bytes on a connection.
struct Hello {
  char nonce[kNonceBytes];
  int32_t rank = -1;
};

Deadline Now() { return Deadline::After(absl::ZeroDuration()); }

// A connection that is not known to be a rank's.
struct Guest {
  UniqueFd socket;
  Deadline patience = Deadline::After(kPatience);
  std::string nonce = NewNonce();
  std::string come = {};  // of the next message
  bool greeted = false;
  Hello hello = {};
};

enum class Progress { kWaits, kProved, kStranger };

// The next message, as far as it has come.
Progress Receive(Guest& guest, size_t wanted) {
  std::string bytes(wanted - guest.come.size(), '\0');
  size_t done = 0;
  const IoResult result = ReceiveAll(guest.socket.get(), bytes.data(), bytes.size(), Now(), &done);
  guest.come.append(bytes, 0, done);
  if (result == IoResult::kOk) return Progress::kProved;
  return result == IoResult::kClosed ? Progress::kStranger : Progress::kWaits;
}

// Takes what the guest has said since. `links`: those of the ranks that have come.
Progress Hear(Guest& guest, const std::string& secret, const std::vector<UniqueFd>& links) {
  if (!guest.greeted) {
    const Progress progress = Receive(guest, sizeof(Hello));
    if (progress != Progress::kProved) return progress;
    std::memcpy(&guest.hello, guest.come.data(), sizeof(Hello));
    guest.come.clear();
    guest.greeted = true;
    if (SendAll(guest.socket.get(), guest.nonce, Now()) != IoResult::kOk) {
      return Progress::kStranger;
    }
  }
  const Progress progress = Receive(guest, kProofBytes);
  if (progress != Progress::kProved) return progress;
  const absl::string_view theirs(guest.hello.nonce, kNonceBytes);
  const int rank = guest.hello.rank;
  const bool welcome = SameProof(guest.come, ClientProof(secret, theirs, guest.nonce)) &&
                       rank > 0 && rank < static_cast<int>(links.size()) &&
                       !links[static_cast<size_t>(rank)].valid();
  const bool told = welcome && SendAll(guest.socket.get(), ServerProof(secret, theirs, guest.nonce),
                                       Now()) == IoResult::kOk;
  return told ? Progress::kProved : Progress::kStranger;
}

// Those who have connected since. Beyond `most` guests, whoever has waited longest makes room.
void Welcome(int listener, size_t most, std::list<Guest>& guests) {
  for (size_t come = 0; come < most; ++come) {
    UniqueFd socket = Accept(listener, Now());
    if (!socket.valid()) {
      // Out of descriptors, perhaps: what strangers hold is to be had.
      if (come == 0 && !guests.empty()) guests.pop_front();
      return;
    }
    if (guests.size() >= most) guests.pop_front();
    guests.push_back({.socket = std::move(socket)});
  }
}

}  // namespace

std::vector<UniqueFd> AdmitRanks(int listener, const std::string& secret, int world_size,
                                 Deadline deadline) {
  std::vector<UniqueFd> links(static_cast<size_t>(world_size));
  int missing = world_size - 1;
  std::list<Guest> guests;
  while (missing > 0 && !deadline.Expired()) {
    Deadline next = deadline;
    std::vector<pollfd> entries = {{listener, POLLIN, 0}};
    for (const Guest& guest : guests) {
      next = std::min(next, guest.patience);
      entries.push_back({guest.socket.get(), POLLIN, 0});
    }
    poll(entries.data(), entries.size(), next.RemainingPollMilliseconds());
    size_t entry = 1;
    for (auto guest = guests.begin(); guest != guests.end(); ++entry) {
      const Progress progress =
          entries[entry].revents != 0 ? Hear(*guest, secret, links) : Progress::kWaits;
      if (progress == Progress::kProved) {
        SetKeepAlive(guest->socket.get());
        links[static_cast<size_t>(guest->hello.rank)] = std::move(guest->socket);
        --missing;
      }
      const bool stays = progress == Progress::kWaits && !guest->patience.Expired();
      guest = stays ? std::next(guest) : guests.erase(guest);
    }
    if (entries[0].revents != 0) {
      Welcome(listener, kMostStrangers + static_cast<size_t>(missing), guests);
    }
  }
  return links;
}

bool ProveRank(int socket, const std::string& secret, int rank, Deadline deadline) {
  Hello hello;
  const std::string nonce = NewNonce();
  std::memcpy(hello.nonce, nonce.data(), kNonceBytes);
  hello.rank = rank;
  const absl::string_view bytes(reinterpret_cast<const char*>(&hello), sizeof(hello));
  std::string theirs(kNonceBytes, '\0');
  std::string proof(kProofBytes, '\0');
  const auto receive = [&](std::string* text) {
    return ReceiveAll(socket, text->data(), text->size(), deadline) == IoResult::kOk;
  };
  return SendAll(socket, bytes, deadline) == IoResult::kOk && receive(&theirs) &&
         SendAll(socket, ClientProof(secret, nonce, theirs), deadline) == IoResult::kOk &&
         receive(&proof) && SameProof(proof, ServerProof(secret, nonce, theirs));
}

}  // namespace lockstep::comm::gloo
