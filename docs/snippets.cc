// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/docs/snippets.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep::docs {
namespace {

// Lines without indentation, empty ones left out, each ended by a newline.
std::string Normalised(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << "cannot open " << path;
  std::string line, text;
  while (std::getline(file, line)) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (!stripped.empty()) absl::StrAppend(&text, stripped, "\n");
  }
  return text;
}

// Without white space: where lines break depends on how deep the code stands.
std::string Squeezed(std::string text) {
  std::erase_if(text, [](char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); });
  return text;
}

}  // namespace

void ExpectSnippetsCompiled(const std::string& markdown, const std::string& source) {
  constexpr char kBegin[] = "\n```cpp\n", kEnd[] = "\n```\n";
  const std::string page = absl::StrCat("\n", Normalised(markdown));
  const std::string code = absl::StrCat("\n", Normalised(source));
  int blocks = 0;
  for (size_t begin = page.find(kBegin); begin != std::string::npos;
       begin = page.find(kBegin, begin)) {
    begin += sizeof(kBegin) - 2;  // Keeps the newline, so that whole lines are compared.
    const size_t end = page.find(kEnd, begin);
    ASSERT_NE(end, std::string::npos) << markdown << ": a block does not end";
    const std::string block = page.substr(begin, end + 1 - begin);
    EXPECT_TRUE(absl::StrContains(Squeezed(code), Squeezed(block)))
        << markdown << ": not in " << source << ":" << block;
    ++blocks;
    begin = end;
  }
  EXPECT_GT(blocks, 0) << markdown << " has no code";
}

}  // namespace lockstep::docs
