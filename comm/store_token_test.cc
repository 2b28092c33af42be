// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/store_token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

std::string FileWith(const std::string& name, const std::string& content, mode_t mode) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  unlink(path.c_str());
  std::ofstream(path) << content;
  chmod(path.c_str(), mode);
  return path;
}

void ExpectRefused(const std::string& path, absl::StatusCode code, const std::string& text) {
  try {
    ReadTokenFile(path);
    ADD_FAILURE() << path << " was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_TRUE(absl::StrContains(error.message(), path)) << error.what();
    EXPECT_TRUE(absl::StrContains(error.message(), text)) << error.what();
  }
}

TEST(StoreToken, FileIsReadWithoutWhiteSpace) {
  EXPECT_EQ(ReadTokenFile(FileWith("good", "  s3 cret\n\n", 0600)), "s3 cret");
  EXPECT_EQ(ReadTokenFile(FileWith("good", "x", 0400)), "x");
  EXPECT_EQ(ReadTokenFile(FileWith("good", std::string(4096, 'x'), 0400)).size(), 4096u);
}

TEST(StoreToken, FilesThatOthersCanReadAreRefused) {
  for (const mode_t mode : {0640, 0604, 0644, 0620, 0777}) {
    ExpectRefused(FileWith("open", "secret", mode), absl::StatusCode::kInvalidArgument,
                  "chmod 600");
  }
}

TEST(StoreToken, OtherFilesAreRefused) {
  ExpectRefused(testing::TempDir() + "/absent", absl::StatusCode::kNotFound, "No such file");
  ExpectRefused(FileWith("empty", " \n", 0600), absl::StatusCode::kInvalidArgument, "empty");
  ExpectRefused(FileWith("long", std::string(4097, 'x'), 0600), absl::StatusCode::kInvalidArgument,
                "4096 bytes");
  const std::string fifo = testing::TempDir() + "/fifo";
  unlink(fifo.c_str());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ExpectRefused(fifo, absl::StatusCode::kInvalidArgument, "not a regular file");
}

// Computed with Python's hmac module; see the header for what is hashed.
TEST(StoreToken, ProofsAreTheDocumentedHmacs) {
  const std::string a(32, 'a');
  const std::string b(32, 'b');
  EXPECT_EQ(absl::BytesToHexString(ClientProof("secret", a, b)),
            "1eb17544a2298eedb574b0df7fc97f49b2a0724afe09a1c3e49fcf28b20bfdb0");
  EXPECT_EQ(absl::BytesToHexString(ServerProof("", a, b)),
            "f5b364250d5fb3efcdc2150c4d5e157668e9391566136c2f49793d1e2a8c841f");
}

TEST(StoreToken, ProofsDependOnEverything) {
  const std::string a = NewNonce();
  const std::string b = NewNonce();
  EXPECT_EQ(a.size(), kNonceBytes);
  EXPECT_NE(a, b);
  const std::string proof = ClientProof("secret", a, b);
  EXPECT_TRUE(SameProof(proof, ClientProof("secret", a, b)));
  EXPECT_FALSE(SameProof(proof, ServerProof("secret", a, b)));
  EXPECT_FALSE(SameProof(proof, ClientProof("secret", b, a)));
  EXPECT_FALSE(SameProof(proof, ClientProof("secret", a, NewNonce())));
  EXPECT_FALSE(SameProof(proof, ClientProof("Secret", a, b)));
  EXPECT_FALSE(SameProof(proof, ClientProof("", a, b)));
  EXPECT_FALSE(SameProof(proof, proof.substr(1)));
  EXPECT_FALSE(SameProof(proof, ""));
}

}  // namespace
}  // namespace lockstep::comm
