// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// DataLoader: batches of a dataset in a sampler's order, prepared ahead by threads.
//
//   data::DataLoader loader(dataset, sampler, {.batch_size = 32, .threads = 2});
//   for (int epoch = 0; epoch < 3; ++epoch) {
//     while (std::optional<NamedTensors> batch = loader.Next()) {
//       Train(batch->At("inputs"), batch->At("labels"));
//     }
//   }
//
// Batches and their order depend on the dataset, the sampler and the position only, never on the
// number of threads or their timing.
#ifndef LOCKSTEP_DATA_LOADER_H_
#define LOCKSTEP_DATA_LOADER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::data {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool drop_last = false;        // leave out a last batch that is smaller
  int threads = 1;               // 0: rows are made by the thread that calls Next
  int64_t prefetch_batches = 2;  // prepared ahead, over all threads
  CollateFunction collate = {};  // StackRows unless given
};

// Where a pass stands: `batch` batches of `epoch` have been handed out.
struct LoaderPosition {
  int64_t epoch = 0;
  int64_t batch = 0;
  friend bool operator==(const LoaderPosition&, const LoaderPosition&) = default;
};

// One thread at a time calls it. The destructor waits for rows being made, not for whole batches.
class DataLoader {
 public:
  // Shares the sampler: SetEpoch on the caller's object changes the next pass. Throws
  // InvalidArgument for a null argument or sizes below 1 (threads below 0).
  DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<DistributedSampler> sampler,
             const DataLoaderOptions& options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // The next batch; nullopt once at the end of a pass, after which the sampler's epoch is advanced
  // and the next call begins another pass. Rethrows what the dataset or the collate function threw
  // for that batch; the call after that continues with the batch behind it.
  std::optional<NamedTensors> Next();

  // Batches a pass has (of the sampler's rows).
  int64_t BatchesPerEpoch() const;

  // Saved after a batch was handed out and restored by Seek, the next batch is the one that would
  // have followed, also in the middle of an epoch. Throws OutOfRange for a batch beyond the pass.
  LoaderPosition position() const;
  void Seek(const LoaderPosition& position);

 private:
  class Pass;
  void StartPass(int64_t first_batch);

  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<DistributedSampler> sampler_;
  DataLoaderOptions options_;
  int64_t next_batch_ = 0;
  std::unique_ptr<Pass> pass_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_LOADER_H_
