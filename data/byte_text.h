// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Text as bytes: files mapped into memory, and a dataset of windows for next-byte prediction.
//
//   auto text = data::ByteText::Open("/usr/include/c++", {.extensions = {""}});
//   auto train = std::make_shared<data::ByteTextDataset>(text, 64, data::TextPart::kTraining);
#ifndef LOCKSTEP_DATA_BYTE_TEXT_H_
#define LOCKSTEP_DATA_BYTE_TEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

struct ByteTextOptions {
  // With a folder: names ending in one of these ("" matches names without a dot); empty: all files.
  std::vector<std::string> extensions = {};
};

// The bytes of a file, or of a folder's files (recursively, in the order of their paths) one after
// the other. Immutable and thread-safe; the files must not change while mapped.
class ByteText {
 public:
  // Throws NotFound (no such path, no file matches), FailedPrecondition (unreadable),
  // InvalidArgument (no bytes in it). Links to folders are not followed.
  static std::shared_ptr<const ByteText> Open(const std::string& path,
                                              const ByteTextOptions& options = {});
  ~ByteText();
  ByteText(const ByteText&) = delete;
  ByteText& operator=(const ByteText&) = delete;

  int64_t size_bytes() const { return starts_.back(); }
  int64_t file_count() const { return static_cast<int64_t>(files_.size()); }
  // Copies bytes [begin, begin + count). REQUIRES: within the text (throws OutOfRange).
  void Read(int64_t begin, int64_t count, uint8_t* out) const;
  // A hash of all file sizes and contents, to tell whether a saved position belongs to this text.
  uint64_t Fingerprint() const;

 private:
  ByteText() = default;
  struct File {
    const uint8_t* data;
    int64_t bytes;
  };
  void Map(const std::string& path);

  std::vector<File> files_;
  std::vector<int64_t> starts_ = {0};  // of each file, and the end
};

// The text is cut into chunks of 16 KiB; every twentieth is held out for validation.
enum class TextPart { kTraining, kValidation };

// Row i is a window of block + 1 bytes within one chunk; windows start `block` bytes apart, so that
// every byte but a chunk's first is predicted once:
//   "ids"     int64 [block]   bytes
//   "targets" int64 [block]   the byte that follows each
class ByteTextDataset : public Dataset {
 public:
  // Throws InvalidArgument unless 1 <= block < 16384, or when the part has no whole window.
  ByteTextDataset(std::shared_ptr<const ByteText> text, int64_t block, TextPart part);
  int64_t size() const override { return first_row_.back(); }
  NamedTensors Get(int64_t index, SampleContext& context) const override;

 private:
  std::shared_ptr<const ByteText> text_;
  int64_t block_;
  std::vector<int64_t> chunk_begin_;
  std::vector<int64_t> first_row_ = {0};  // of each chunk, and the end
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_BYTE_TEXT_H_
