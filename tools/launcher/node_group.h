// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the launchers of a job's nodes agree on: when an attempt starts, with which ranks where, and
// how it ends. A job on one node is a group of one.
//
//   NodeGroup group(options, token);
//   for (;;) {
//     const Meeting meeting = group.Meet(interrupted);     // all nodes are ready
//     ... start this node's ranks as *meeting.plan says ...
//     while (ranks run) {
//       if (a rank failed) group.ReportFailure({...});
//       if (all have ended well) group.ReportDone();
//       if (std::optional<Verdict> verdict = group.Poll()) ... stop the ranks ...
//     }
//   }
//   group.Leave();
//
// Node 0 decides, from what the nodes report and from their signs of life; the others do as it
// says. A node that has lost sight of node 0 for `node_timeout` stops its ranks and tries to come
// back until `join_timeout`. A launcher that is started again on a node where one died joins the
// next attempt, which its coming brings about. When node 0's launcher dies the job ends.
//
// The notes, by attempt: attempt (number), ready/A/NODE, plan/A, report/A/NODE, verdict/A,
// bye/NODE.
#ifndef LOCKSTEP_TOOLS_LAUNCHER_NODE_GROUP_H_
#define LOCKSTEP_TOOLS_LAUNCHER_NODE_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/comm/store.h"
#include "lockstep/tools/launcher/node_board.h"
#include "lockstep/tools/launcher/options.h"

namespace lockstep::launcher {

// One attempt, the same on all nodes.
struct NodePlan {
  int attempt = 0;
  std::string run_id = {};
  std::vector<int> nprocs = {};  // by node
  std::string master_address = {};
  int master_port = 0;  // free for rank 0 to serve at
  int store_port = 0;   // of the attempt's store at master_address; 0: ranks use a folder

  int world_size() const;
  int first_rank(int node) const;
  std::string ToString() const;
  // Throws InternalError for what ToString has not made.
  static NodePlan FromString(absl::string_view text);
};

enum class VerdictKind {
  kSuccess,  // all ranks of all nodes ended with 0
  kRestart,  // stop and meet again
  kGiveUp,   // stop; no restarts are left
  kStop      // a signal came to a launcher: have the ranks stop, and end
};

struct Verdict {
  VerdictKind kind = VerdictKind::kSuccess;
  int exit_status = 0;    // of the job, for kGiveUp and, should it end with this, kRestart
  std::string text = {};  // why: "rank 3 (node 1, host b) was killed by signal 9 (Killed)"

  std::string ToString() const;
  static Verdict FromString(absl::string_view text);
};

struct Failure {
  int exit_status = 1;
  int64_t unix_ns = 0;  // when, to find the first of several; clocks of nodes are taken to agree
  std::string text = {};
};

// What Meet ends with: a plan, or the verdict that there is nothing left to do.
struct Meeting {
  std::optional<NodePlan> plan = {};
  Verdict verdict = {};
};

class NodeGroup {
 public:
  // Waits as NodeBoard does, and throws what it throws.
  NodeGroup(const LaunchOptions& options, const std::string& token);
  ~NodeGroup();

  // Waits for all nodes. Called when this node's ranks of the attempt before have ended.
  // `interrupted` is asked often; when it says so, that is reported as a stop. Throws
  // DeadlineExceeded naming the nodes that did not come.
  Meeting Meet(const std::function<bool()>& interrupted);

  // This node's part of the current attempt. The first failure counts.
  void ReportDone();
  void ReportFailure(const Failure& failure);
  // Counts more than the others.
  void ReportStop(absl::string_view text);

  // Once there is one, for ever; call it every 100 ms or so. Where node 0 is out of sight for too
  // long, the verdict is this node's own.
  std::optional<Verdict> Poll();

  // After a verdict that ends the job: node 0 waits a moment for the others to read it.
  void Leave();

  // Where the ranks of this attempt meet, in words.
  std::string Describe() const { return board_.Describe(); }

 private:
  bool coordinates() const { return options_.node_rank == 0; }
  std::string Key(absl::string_view kind, int attempt) const;
  std::string Key(absl::string_view kind, int attempt, int node) const;
  Meeting Gather(const std::function<bool()>& interrupted);
  Meeting Join(const std::function<bool()>& interrupted);
  NodePlan MakePlan(const std::vector<int>& nprocs);
  std::vector<int> Missing(std::vector<int>* nprocs);
  void Report(const std::string& text);
  void ForgetReport();
  void Flush();
  std::optional<Verdict> Decide();
  std::optional<Verdict> DecideFromReports();
  std::optional<Verdict> SilentNode();

  const LaunchOptions options_;
  const std::string token_;
  NodeBoard board_;
  std::unique_ptr<comm::StoreServer> rank_store_;  // of the current attempt, on node 0
  std::string run_id_;
  int attempt_ = -1;
  std::string report_;      // what this node has to say about the attempt
  std::string unsent_key_;  // where it is still to go; "" when it went
  std::optional<Verdict> verdict_;
};

}  // namespace lockstep::launcher

#endif  // LOCKSTEP_TOOLS_LAUNCHER_NODE_GROUP_H_
