// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How the two ends of a store's connection prove to each other that they know one token.
//
//   StoreServerOptions options;
//   options.token = ReadTokenFile("/etc/lockstep/token");
//
// The token itself never travels. Each end sends 32 fresh random bytes, a nonce; the client then
// sends HMAC-SHA256(token, "client" and both nonces), and only a client that proved its knowledge
// gets HMAC-SHA256(token, "server" and both nonces) in return. A proof is worth nothing on another
// connection, nor in the other direction. Whoever reads the traffic can try tokens against a proof
// at leisure, so a token should be random (`openssl rand -hex 32`); what follows the proofs is not
// encrypted.
#ifndef LOCKSTEP_COMM_STORE_TOKEN_H_
#define LOCKSTEP_COMM_STORE_TOKEN_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep::comm {

// The token in a file, without white space around it. Throws NotFound (no such file),
// InvalidArgument (not a regular file, owned by another user than this one or root, readable for
// group or others, empty, or longer than 4 KiB).
std::string ReadTokenFile(const std::string& path);

// ---- For the store ----

inline constexpr size_t kNonceBytes = 32;

// From the kernel's random numbers.
std::string NewNonce();

std::string ClientProof(absl::string_view token, absl::string_view client_nonce,
                        absl::string_view server_nonce);
std::string ServerProof(absl::string_view token, absl::string_view client_nonce,
                        absl::string_view server_nonce);

// Takes as long for any content; only the length may show.
bool SameProof(absl::string_view a, absl::string_view b);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_STORE_TOKEN_H_
