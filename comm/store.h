// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A small key-value store through which ranks find each other.
//
//   const std::string token = ReadTokenFile("/etc/lockstep/token");              // store_token.h
//   StoreServer server({.address = "127.0.0.1", .port = 0, .token = token});     // one of them
//   StoreClient store({.address = "127.0.0.1", .port = server.port(), .token = token});
//   store.Set("address/0", "...");
//   std::string peer = store.Get("address/1", Deadline::After(absl::Seconds(30)));
//
// Every call has a deadline; its errors name the call, the key, the store and how long it waited.
// It is for rendezvous, not for data: keys are at most 1 KiB and values at most 1 MiB. Ranks
// without a network between them but with a common folder use file_store.h.
#ifndef LOCKSTEP_COMM_STORE_H_
#define LOCKSTEP_COMM_STORE_H_

#include <any>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"

namespace lockstep::comm {

inline constexpr int64_t kMaxStoreKeyBytes = 1 << 10;
inline constexpr int64_t kMaxStoreValueBytes = 1 << 20;
// Calls of several threads that one StoreClient has under way; further ones wait for a place,
// within their deadline.
inline constexpr int kMaxStoreCallsInFlight = 32;
// Connections that have not proved to know the token, in one server. Under a flood those that have
// been silent for half a second make room for new ones.
inline constexpr int kMaxStoreStrangers = 64;

// Thread-safe. All throw InvalidArgument (key or value too long), DeadlineExceeded, Unavailable
// (the store is gone: at once, whatever the deadline). After a deadline the store stays usable;
// whether a Set, Add or Delete that ran into one still takes effect is open.
class Store {
 public:
  virtual ~Store() = default;

  virtual void Set(absl::string_view key, absl::string_view value, Deadline deadline) = 0;
  // The value, as soon as there is one.
  virtual std::string Get(absl::string_view key, Deadline deadline) = 0;
  // Returns when all keys exist; the error lists those that are missing.
  virtual void Wait(const std::vector<std::string>& keys, Deadline deadline) = 0;
  // Adds to a number (absent: 0) and returns the sum. Throws FailedPrecondition when the key holds
  // something else. The number is stored as decimal text, so that Get can read it.
  virtual int64_t Add(absl::string_view key, int64_t delta, Deadline deadline) = 0;
  // Whether there was such a key.
  virtual bool Delete(absl::string_view key, Deadline deadline) = 0;

  // "store at 127.0.0.1:29500", for messages.
  virtual std::string Describe() const = 0;
};

// For ranks that are threads of one process, which share the object.
class LocalStore final : public Store {
 public:
  void Set(absl::string_view key, absl::string_view value, Deadline deadline) override;
  std::string Get(absl::string_view key, Deadline deadline) override;
  void Wait(const std::vector<std::string>& keys, Deadline deadline) override;
  int64_t Add(absl::string_view key, int64_t delta, Deadline deadline) override;
  bool Delete(absl::string_view key, Deadline deadline) override;
  std::string Describe() const override { return "in-process store"; }

  // One object that all threads share: the first to come makes it, at `key`.
  template <typename T>
  std::shared_ptr<T> Share(absl::string_view key, const std::function<std::shared_ptr<T>()>& make) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::any& slot = shared_[std::string(key)];
    if (!slot.has_value()) slot = make();
    return std::any_cast<std::shared_ptr<T>>(slot);
  }

 private:
  void AwaitKeys(absl::string_view call, const std::vector<std::string>& keys, Deadline deadline,
                 std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::any> shared_;
};

struct StoreServerOptions {
  std::string address = "127.0.0.1";  // a numeric address or a name; only this one is bound
  int port = 0;                       // 0: any free one, see port()
  // Clients must prove to know the same. Empty: whoever reaches the port is let in.
  std::string token = {};
  bool listen = true;  // false: serves adopted connections only
  // A connection that has not proved to know the token by then is dropped.
  absl::Duration handshake_timeout = absl::Seconds(5);
};

// Serves on a thread of its own until destroyed. A connection that sends anything malformed or too
// large (before its proof: more than 1 KiB), or nothing in time, is dropped; the others do not
// notice. Nothing is logged about it. Strangers hold at most 2 MiB.
class StoreServer {
 public:
  // Throws InvalidArgument (bad address or timeout), Unavailable (address in use; names it).
  explicit StoreServer(const StoreServerOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const;
  // Serves one end of a connected socket, which needs no token (whoever has it was given it).
  void Adopt(int socket);
  // A client inside this process. It must not be used after the server is gone.
  const std::shared_ptr<Store>& local() const { return local_; }

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  std::shared_ptr<Store> local_;
};

struct StoreClientOptions {
  std::string address = "127.0.0.1";
  int port = 0;
  std::string token = {};
  // Until when to try to reach a server that may not have started yet.
  absl::Duration connect_timeout = absl::Seconds(60);
};

// One connection, which the calls of several threads share: a call does not wait for the answer to
// another's, so that a Get of a key that comes late holds up nobody.
class StoreClient final : public Store {
 public:
  // Throws DeadlineExceeded (nobody listens at address:port, or nobody answers), InvalidArgument
  // (the server refuses the token, or what answers is no store), Unavailable (what answers does not
  // know the token itself: another job's store, or an impostor's). A connection that ends before
  // the server has answered (it is starting, or flooded) is tried again.
  explicit StoreClient(const StoreClientOptions& options);
  // Over a connected socket whose other end a server has adopted. Owns it.
  StoreClient(int socket, std::string description);
  ~StoreClient() override;

  void Set(absl::string_view key, absl::string_view value, Deadline deadline) override;
  std::string Get(absl::string_view key, Deadline deadline) override;
  void Wait(const std::vector<std::string>& keys, Deadline deadline) override;
  int64_t Add(absl::string_view key, int64_t delta, Deadline deadline) override;
  bool Delete(absl::string_view key, Deadline deadline) override;
  std::string Describe() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_STORE_H_
