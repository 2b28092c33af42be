// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/node_board.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/child_process.h"
#include "lockstep/comm/file_store.h"
#include "lockstep/comm/socket.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

constexpr char kBoardKey[] = "board";
// Within this a live store answers over a network; one in this process is never out of reach.
constexpr absl::Duration kAnswer = absl::Milliseconds(200);
constexpr absl::Duration kOwnAnswer = absl::Seconds(10);
// How long a Get waits at the board for a note that is not there yet.
constexpr absl::Duration kPatience = absl::Milliseconds(20);
constexpr absl::Duration kReconnect = absl::Milliseconds(200);

bool IsNoAnswer(const Error& error) {
  return error.code() == absl::StatusCode::kDeadlineExceeded ||
         error.code() == absl::StatusCode::kUnavailable;
}

std::unique_ptr<comm::StoreServer> Serve(const comm::StoreServerOptions& options) {
  // The server's thread is not to take signals that are meant for the launcher's main thread.
  const comm::SignalCatcher none({SIGINT, SIGTERM, SIGHUP});
  return std::make_unique<comm::StoreServer>(options);
}

}  // namespace

NodeBoard::NodeBoard(const LaunchOptions& options, std::string token)
    : options_(options), token_(std::move(token)), incarnation_(comm::RandomName()) {
  if (!options.rendezvous_folder.empty()) {
    std::error_code failure;
    fs::create_directory(options.rendezvous_folder, failure);  // FileStore says what is wrong
    fs::permissions(options.rendezvous_folder, fs::perms::group_write | fs::perms::others_write,
                    fs::perm_options::remove, failure);
    store_ = std::make_shared<comm::FileStore>(
        comm::FileStoreOptions{.folder = options.rendezvous_folder + "/nodes",
                               .rank = options.node_rank,
                               .world_size = options.nnodes,
                               .timeout = options.join_timeout});
    fs::create_directory(options.rendezvous_folder + "/beats", failure);
  } else if (options.rendezvous_host.empty()) {
    store_ = std::make_shared<comm::LocalStore>();
  } else if (options.node_rank == 0) {
    server_ = Serve(
        {.address = options.rendezvous_host, .port = options.rendezvous_port, .token = token_});
    store_ = server_->local();
    store_->Set(kBoardKey, incarnation_, Deadline::After(absl::Seconds(10)));
  } else {
    Connect(options.join_timeout);
  }
}

void NodeBoard::Connect(absl::Duration timeout) {
  store_ = std::make_shared<comm::StoreClient>(
      comm::StoreClientOptions{.address = options_.rendezvous_host,
                               .port = options_.rendezvous_port,
                               .token = token_,
                               .connect_timeout = timeout});
  CheckSameBoard();
}

void NodeBoard::CheckSameBoard() {
  const std::string id = store_->Get(kBoardKey, Deadline::After(absl::Seconds(2)));
  if (board_id_.empty()) board_id_ = id;
  if (id != board_id_) {
    throw FailedPreconditionError(absl::StrCat("the launcher of node 0 (", store_->Describe(),
                                               ") was started anew: start this node's anew too"));
  }
}

bool NodeBoard::Set(const std::string& key, absl::string_view value) {
  if (store_ == nullptr) return false;
  try {
    store_->Set(key, value, Deadline::After(options_.node_rank == 0 ? kOwnAnswer : kAnswer));
    return true;
  } catch (const Error& error) {
    if (!IsNoAnswer(error)) throw;
    if (error.code() == absl::StatusCode::kUnavailable) store_.reset();
    return false;
  }
}

std::optional<std::string> NodeBoard::Get(const std::string& key) {
  if (store_ == nullptr) return std::nullopt;
  try {
    return store_->Get(key, Deadline::After(kPatience));
  } catch (const Error& error) {
    if (!IsNoAnswer(error)) throw;
    if (error.code() == absl::StatusCode::kUnavailable) store_.reset();
    return std::nullopt;
  }
}

void NodeBoard::Beat() {
  if (options_.nnodes == 1) return;
  const absl::Duration period = std::min(options_.node_timeout / 10, absl::Seconds(1));
  if (beats_ > 0 && since_beat_.Elapsed() < period) return;
  since_beat_.Restart();
  if (store_ == nullptr) {
    try {
      Connect(kReconnect);
    } catch (const Error& error) {
      if (!IsNoAnswer(error)) throw;
      store_.reset();
      return;
    }
  }
  if (PutBeat(absl::StrCat(incarnation_, " ", ++beats_))) reached_.Restart();
}

std::string NodeBoard::BeatFile(int node) const {
  return absl::StrCat(options_.rendezvous_folder, "/beats/node-", node);
}

bool NodeBoard::PutBeat(const std::string& text) {
  if (options_.rendezvous_folder.empty()) {
    return Set(absl::StrCat("beat/", options_.node_rank), text);
  }
  // Not a note in the store, which keeps a name for every change.
  const std::string path = BeatFile(options_.node_rank);
  const std::string fresh = path + ".new";
  std::ofstream file(fresh);
  file << text;
  file.close();
  std::error_code failure;
  if (file) fs::rename(fresh, path, failure);
  return file && !failure;
}

std::optional<std::string> NodeBoard::ReadBeat(int node) {
  if (options_.rendezvous_folder.empty()) return Get(absl::StrCat("beat/", node));
  std::ifstream file(BeatFile(node));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || text.empty()) return std::nullopt;
  return text;
}

absl::Duration NodeBoard::SinceBeat(int node) {
  if (node == options_.node_rank) return absl::ZeroDuration();
  Seen& seen = seen_[node];
  const std::optional<std::string> beat = ReadBeat(node);
  if (beat.has_value() && *beat != seen.beat) {
    seen.beat = *beat;
    seen.since.Restart();
  }
  return seen.since.Elapsed();
}

std::string NodeBoard::Describe() const {
  if (!options_.rendezvous_folder.empty()) {
    return absl::StrCat("folder ", options_.rendezvous_folder);
  }
  if (options_.rendezvous_host.empty()) return "this launcher";
  return absl::StrCat("store at ", options_.rendezvous_host, ":", options_.rendezvous_port);
}

}  // namespace lockstep::launcher
