// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::data {

// One pass from a given batch on: the rows, and the threads that make batches ahead of the caller.
class DataLoader::Pass {
 public:
  Pass(const DataLoader& loader, std::vector<int64_t> rows, int64_t epoch, int64_t first_batch,
       int64_t batch_count)
      : dataset_(*loader.dataset_),
        options_(loader.options_),
        seed_(loader.sampler_->options().seed),
        rows_(std::move(rows)),
        epoch_(epoch),
        batch_count_(batch_count),
        next_to_make_(first_batch),
        next_to_take_(first_batch) {
    for (int i = 0; i < options_.threads; ++i) {
      threads_.emplace_back([this, state = CurrentThreadState()] {
        ScopedThreadState scope(state);
        MakeAhead();
      });
    }
  }

  ~Pass() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  int64_t epoch() const { return epoch_; }
  bool finished() const { return next_to_take_ >= batch_count_; }

  NamedTensors Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t number = next_to_take_++;
    if (threads_.empty()) return MakeBatch(number);
    changed_.notify_all();  // one more batch may be made ahead
    changed_.wait(lock, [&] { return ready_.contains(number); });
    Result result = std::move(ready_.at(number));
    ready_.erase(number);
    lock.unlock();
    if (result.error) std::rethrow_exception(result.error);
    return std::move(result.batch);
  }

 private:
  struct Result {
    NamedTensors batch;
    std::exception_ptr error;
  };

  void MakeAhead() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] {
        return stopping_ || next_to_make_ >= batch_count_ ||
               next_to_make_ < next_to_take_ + options_.prefetch_batches;
      });
      if (stopping_ || next_to_make_ >= batch_count_) return;
      const int64_t number = next_to_make_++;
      lock.unlock();
      Result result;
      try {
        result.batch = MakeBatch(number);
      } catch (...) {
        result.error = std::current_exception();
      }
      lock.lock();
      ready_.emplace(number, std::move(result));
      changed_.notify_all();
    }
  }

  NamedTensors MakeBatch(int64_t number) const {
    CategoryScope category(MemoryCategory::kData);
    const int64_t begin = number * options_.batch_size;
    const int64_t end = std::min(begin + options_.batch_size, static_cast<int64_t>(rows_.size()));
    std::vector<NamedTensors> rows;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t index = rows_[static_cast<size_t>(i)];
      SampleContext context{epoch_, SampleGenerator(seed_, epoch_, index)};
      rows.push_back(dataset_.Get(index, context));
    }
    return options_.collate ? options_.collate(rows) : StackRows(rows);
  }

  const Dataset& dataset_;
  const DataLoaderOptions& options_;
  const uint64_t seed_;
  const std::vector<int64_t> rows_;
  const int64_t epoch_;
  const int64_t batch_count_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_ (finished() reads next_to_take_ on the only thread that writes it).
  int64_t next_to_make_;
  int64_t next_to_take_;
  std::map<int64_t, Result> ready_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset,
                       std::shared_ptr<DistributedSampler> sampler,
                       const DataLoaderOptions& options)
    : dataset_(std::move(dataset)), sampler_(std::move(sampler)), options_(options) {
  if (!dataset_ || !sampler_) {
    throw InvalidArgumentError("DataLoader: give a dataset and a sampler; one of them is null");
  }
  if (options.batch_size < 1 || options.threads < 0 || options.prefetch_batches < 1) {
    throw InvalidArgumentError(absl::StrCat(
        "DataLoader: batch_size ", options.batch_size, ", threads ", options.threads,
        ", prefetch_batches ", options.prefetch_batches, "; give at least 1, 0 and 1"));
  }
}

DataLoader::~DataLoader() = default;

int64_t DataLoader::BatchesPerEpoch() const {
  const int64_t rows = sampler_->Count();
  return options_.drop_last ? rows / options_.batch_size
                            : (rows + options_.batch_size - 1) / options_.batch_size;
}

void DataLoader::StartPass(int64_t first_batch) {
  pass_ = nullptr;  // its threads end before new ones start
  next_batch_ = first_batch;
  pass_ = std::make_unique<Pass>(*this, sampler_->Indices(), sampler_->epoch(), first_batch,
                                 BatchesPerEpoch());
}

std::optional<NamedTensors> DataLoader::Next() {
  // SetEpoch before the first batch of a pass changes that pass.
  if (!pass_ || (next_batch_ == 0 && pass_->epoch() != sampler_->epoch())) StartPass(next_batch_);
  if (pass_->finished()) {
    const int64_t epoch = pass_->epoch();
    pass_ = nullptr;
    next_batch_ = 0;
    if (sampler_->epoch() == epoch) sampler_->SetEpoch(epoch + 1);
    return std::nullopt;
  }
  ++next_batch_;
  return pass_->Take();
}

LoaderPosition DataLoader::position() const {
  return {pass_ && next_batch_ > 0 ? pass_->epoch() : sampler_->epoch(), next_batch_};
}

void DataLoader::Seek(const LoaderPosition& position) {
  if (position.epoch < 0 || position.batch < 0 || position.batch > BatchesPerEpoch()) {
    throw OutOfRangeError(absl::StrCat("DataLoader::Seek: batch ", position.batch, " of epoch ",
                                       position.epoch, "; a pass has ", BatchesPerEpoch(),
                                       " batches"));
  }
  sampler_->SetEpoch(position.epoch);
  StartPass(position.batch);
}

}  // namespace lockstep::data
