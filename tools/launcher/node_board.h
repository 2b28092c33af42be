// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the launchers of a job's nodes leave notes for each other, whichever way they meet: a store
// that node 0's launcher serves, a folder that all see, or nothing but memory when there is one
// node.
//
//   NodeBoard board(options, token);                 // returns when there is a way to meet
//   board.Set("report/0/1", "done");
//   if (std::optional<std::string> text = board.Get("verdict/0")) ...
//   board.Beat();                                    // "I live"
//   if (board.SinceBeat(2) > options.node_timeout)   // node 2 does not
//
// Calls take a few tenths of a second at most, also when the network is down. A connection that is
// lost is made again. Not thread-safe.
#ifndef LOCKSTEP_TOOLS_LAUNCHER_NODE_BOARD_H_
#define LOCKSTEP_TOOLS_LAUNCHER_NODE_BOARD_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/store.h"
#include "lockstep/tools/launcher/options.h"

namespace lockstep::launcher {

class NodeBoard {
 public:
  // Waits for node 0's launcher to serve, or for all nodes to come to the folder, until
  // `join_timeout`. Throws what the stores throw (comm/store.h, comm/file_store.h): Unavailable
  // (the port is taken), DeadlineExceeded, InvalidArgument (another token), FailedPrecondition (a
  // folder of an earlier start).
  NodeBoard(const LaunchOptions& options, std::string token);

  // False when the board cannot be reached now.
  bool Set(const std::string& key, absl::string_view value);
  // Nothing when there is no such note, or the board cannot be reached now.
  std::optional<std::string> Get(const std::string& key);

  // Says that this node lives; does something only every now and then. Throws FailedPrecondition
  // when the board is another one than before: node 0's launcher was started anew.
  void Beat();
  // How long ago the board took a beat from us.
  absl::Duration SinceReached() const { return reached_.Elapsed(); }
  // How long ago the beat of `node` last changed, as far as this one has looked (call it often).
  // Zero for this node.
  absl::Duration SinceBeat(int node);
  // Starts counting anew for all nodes.
  void ForgetBeats() { seen_.clear(); }

  // "store at ..." or "folder ...".
  std::string Describe() const;

 private:
  struct Seen {
    std::string beat;
    Stopwatch since;
  };

  void Connect(absl::Duration timeout);
  void CheckSameBoard();
  bool PutBeat(const std::string& text);
  std::optional<std::string> ReadBeat(int node);
  std::string BeatFile(int node) const;

  const LaunchOptions options_;
  const std::string token_;
  const std::string incarnation_;  // of this launcher
  std::unique_ptr<comm::StoreServer> server_;
  std::shared_ptr<comm::Store> store_;  // null: not connected now
  std::string board_id_;
  std::map<int, Seen> seen_;
  int64_t beats_ = 0;
  Stopwatch since_beat_;
  Stopwatch reached_;
};

}  // namespace lockstep::launcher

#endif  // LOCKSTEP_TOOLS_LAUNCHER_NODE_BOARD_H_
