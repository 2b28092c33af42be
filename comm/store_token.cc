// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/store_token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm {
namespace {

constexpr size_t kMaxTokenFileBytes = 4096;

std::string Proof(absl::string_view who, absl::string_view token, absl::string_view client_nonce,
                  absl::string_view server_nonce) {
  const std::string text = absl::StrCat("lockstep store ", who, client_nonce, server_nonce);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int digest_bytes = 0;
  // An empty string_view may hold a null pointer, which HMAC takes for "the previous key".
  const std::string key(token);
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest,
           &digest_bytes) == nullptr) {
    throw InternalError("store: OpenSSL refuses to compute an HMAC-SHA256");
  }
  return std::string(reinterpret_cast<const char*>(digest), digest_bytes);
}

void CheckTokenFile(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    throw InvalidArgumentError(absl::StrCat("ReadTokenFile: ", path, " is not a regular file"));
  }
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    throw InvalidArgumentError(absl::StrCat("ReadTokenFile: ", path, " belongs to user ",
                                            info.st_uid, ", not to this one (", geteuid(),
                                            ") or root"));
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw InvalidArgumentError(absl::StrFormat(
        "ReadTokenFile: others may use %s (mode %04o): make it private, chmod 600, and use a new "
        "token",
        path, static_cast<unsigned>(info.st_mode & 07777)));
  }
}

}  // namespace

std::string ReadTokenFile(const std::string& path) {
  // Without O_NONBLOCK a fifo would wait for its writer.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) {
    throw NotFoundError(absl::StrCat("ReadTokenFile: cannot open ", path, ": ", ErrnoText(errno)));
  }
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) {
    throw InternalError(absl::StrCat("ReadTokenFile: fstat of ", path, ": ", ErrnoText(errno)));
  }
  CheckTokenFile(path, info);
  std::string token(kMaxTokenFileBytes + 1, '\0');
  size_t filled = 0;
  while (filled < token.size()) {
    const ssize_t n = read(file.get(), token.data() + filled, token.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw NotFoundError(
          absl::StrCat("ReadTokenFile: cannot read ", path, ": ", ErrnoText(errno)));
    }
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  token.resize(filled);
  if (filled > kMaxTokenFileBytes) {
    throw InvalidArgumentError(absl::StrCat("ReadTokenFile: ", path, " has more than ",
                                            kMaxTokenFileBytes, " bytes: is it a token?"));
  }
  absl::StripAsciiWhitespace(&token);
  if (token.empty()) {
    throw InvalidArgumentError(absl::StrCat("ReadTokenFile: ", path, " is empty"));
  }
  return token;
}

std::string NewNonce() {
  std::string nonce(kNonceBytes, '\0');
  size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t n = getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    if (n > 0) filled += static_cast<size_t>(n);
  }
  return nonce;
}

std::string ClientProof(absl::string_view token, absl::string_view client_nonce,
                        absl::string_view server_nonce) {
  return Proof("client", token, client_nonce, server_nonce);
}

std::string ServerProof(absl::string_view token, absl::string_view client_nonce,
                        absl::string_view server_nonce) {
  return Proof("server", token, client_nonce, server_nonce);
}

bool SameProof(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lockstep::comm
