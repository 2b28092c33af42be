// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The manifest of a sharded state: which file has which elements of which tensor. Pure functions
// between a struct and its text.
//
// The text is JSON:
//
//   {"format": "lockstep sharded state 1", "step": 2200, "world_size": 2,
//    "values": {"schedule.step": 2200},
//    "files": [{"bytes": 1234, "xxh64": "..."}, ...],            one a rank
//    "tensors": {"wte.weight": {"dtype": "float32", "shape": [256, 64],
//                               "ranges": [[0, 8192], [8192, 16384]]}, ...},
//    "xxh64": "..."}                                             of all before it
//
// A range is of elements in row-major order, by rank; null where a rank has none. Every element of
// a tensor is in at least one range. Whoever reads the state on another number of ranks finds the
// elements that it wants by these ranges.
#ifndef LOCKSTEP_STATE_SHARDED_MANIFEST_H_
#define LOCKSTEP_STATE_SHARDED_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/state/state_values.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::state {

// Elements [begin, end) of a tensor in row-major order.
struct ShardRange {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

struct ShardedManifest {
  struct File {
    int64_t bytes = 0;
    std::string checksum;  // XXH64, 16 hexadecimal digits
  };
  struct Tensor {
    std::string name;
    DType dtype = DType::kFloat32;
    Shape shape;                                    // of the whole tensor
    std::vector<std::optional<ShardRange>> ranges;  // of each rank; in its file as [end - begin]
  };

  int64_t step = 0;
  Values values;
  std::vector<File> files;  // of each rank
  std::vector<Tensor> tensors;

  int world_size() const { return static_cast<int>(files.size()); }
};

// In the folder of a state, beside each rank's RankFileName().
inline constexpr char kManifestFileName[] = "manifest.json";

// Throws InvalidArgument for values that are not finite.
std::string FormatManifest(const ShardedManifest& manifest);
// Throws DataLoss: foreign, damaged, or one in which CheckManifest finds something.
ShardedManifest ParseManifest(absl::string_view text);

// What is wrong with it (a range outside of its tensor, an element in no file, a number of ranges
// that is not that of files, a repeated name), or "".
std::string CheckManifest(const ShardedManifest& manifest);

// What one rank tells the one that writes the manifest: its file, and its ranges of the tensors
// that it has, in a manifest of one rank without step and values.
std::string FormatRankManifest(const ShardedManifest& manifest);
ShardedManifest ParseRankManifest(absl::string_view text);
// One of all ranks', with step and values to be filled in. Throws InvalidArgument where ranks have
// tensors of one name with other dtypes or shapes, and for what CheckManifest finds.
ShardedManifest MergeManifests(const std::vector<ShardedManifest>& ranks);

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_SHARDED_MANIFEST_H_
