// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/data_parallel/parallel_apply.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_state.h"
#include "lockstep/autograd/worker_pool.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

// One function's part of a call.
struct Part {
  const ReplicaFunction* function = nullptr;
  const TensorTree* input = nullptr;
  ThreadState state;
  TensorTree output;
  RandomStreams random;  // afterwards
  std::exception_ptr error;
};

// Waits for the parts on other threads. Shared with them: the last may still hold the lock when the
// caller goes on.
class Countdown {
 public:
  explicit Countdown(size_t count) : count_(count) {}
  void Done() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--count_ == 0) done_.notify_one();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  size_t count_;
};

// Data streams of replicas other than 0, beyond all numbers that ManualSeed gives.
constexpr uint64_t kReplicaDataStream = uint64_t{1} << 40;

RandomStreams StreamsOf(const RandomStreams& caller, uint64_t part, uint64_t count) {
  RandomStreams streams = caller;
  const uint64_t rank = caller.dropout.key.stream - kDropoutStreamBase;
  streams.dropout.key.stream = kDropoutStreamBase + rank * count + part;
  if (part > 0) streams.data.key.stream += kReplicaDataStream * part;
  return streams;
}

// As far as the furthest.
void Advance(Generator& generator, const Generator& other) {
  generator.key.offset = std::max(generator.key.offset, other.key.offset);
}

void RunPart(Part& part) {
  const ScopedThreadState scope(part.state);
  part.output = (*part.function)(*part.input);
  part.random = ThreadGenerators();
}

void RunCaught(Part& part) {
  try {
    RunPart(part);
  } catch (...) {
    part.error = std::current_exception();
  }
}

[[noreturn]] void Rethrow(const Part& part, size_t index, size_t count) {
  const std::string context =
      absl::StrCat("replica ", index, " of ", count, " on ", ToString(part.state.device));
  try {
    std::rethrow_exception(part.error);
  } catch (const Error& error) {
    throw error.WithContext(context);
  } catch (const std::exception& exception) {
    std::throw_with_nested(InternalError(absl::StrCat(context, ": ", exception.what())));
  }
  // What is no std::exception passes as it is: checkpointing ends a second run with such a one.
}

void RunInTurn(std::vector<Part>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    RunCaught(parts[i]);
    if (parts[i].error) Rethrow(parts[i], i, parts.size());
  }
}

void RunTogether(std::vector<Part>& parts) {
  const auto countdown = std::make_shared<Countdown>(parts.size() - 1);
  for (size_t i = 1; i < parts.size(); ++i) {
    try {
      autograd::internal::RunOnWorker([&part = parts[i], countdown] {
        RunCaught(part);
        countdown->Done();
      });
    } catch (...) {  // no thread to be had
      parts[i].error = std::current_exception();
      countdown->Done();
    }
  }
  RunCaught(parts[0]);
  countdown->Wait();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].error) Rethrow(parts[i], i, parts.size());
  }
}

void Check(absl::Span<const ReplicaFunction> functions, absl::Span<const TensorTree> inputs,
           absl::Span<const Device> devices, const ParallelApplyOptions& options) {
  CheckDevices(devices, "ParallelApply");
  if (functions.size() != devices.size() || inputs.size() != devices.size()) {
    throw InvalidArgumentError(absl::StrCat("ParallelApply: ", functions.size(), " functions, ",
                                            inputs.size(), " inputs and ", devices.size(),
                                            " devices; give one function and input a device"));
  }
  for (size_t i = 0; i < functions.size(); ++i) {
    if (functions[i] != nullptr) continue;
    throw InvalidArgumentError(absl::StrCat("ParallelApply: function ", i, " is empty"));
  }
  if (options.threads_per_device < 0) {
    throw InvalidArgumentError(absl::StrCat("ParallelApply: threads_per_device is ",
                                            options.threads_per_device,
                                            "; give at least 1, or 0 to divide the caller's"));
  }
}

}  // namespace

std::vector<TensorTree> ParallelApply(absl::Span<const ReplicaFunction> functions,
                                      absl::Span<const TensorTree> inputs,
                                      absl::Span<const Device> devices,
                                      const ParallelApplyOptions& options) {
  Check(functions, inputs, devices, options);
  const size_t count = functions.size();
  std::vector<Part> parts(count);
  for (size_t i = 0; i < count; ++i) {
    Part& part = parts[i];
    part.function = &functions[i];
    part.input = &inputs[i];
    part.state = CurrentThreadState();
    part.state.device = devices[i];
    part.state.stream = 0;
    part.state.random = StreamsOf(ThreadGenerators(), i, count);
    if (options.threads_per_device > 0) {
      part.state.intra_op_threads = options.threads_per_device;
    } else if (count > 1) {
      part.state.intra_op_threads = std::max(1, IntraOpThreads() / static_cast<int>(count));
    }
  }
  const auto* gradients = autograd::internal::CurrentGradState();
  if (gradients != nullptr && gradients->hooks != nullptr) {
    RunInTurn(parts);
  } else {
    RunTogether(parts);
  }
  std::vector<TensorTree> outputs;
  for (Part& part : parts) {
    RandomStreams& random = ThreadGenerators();
    Advance(random.parameters, part.random.parameters);
    Advance(random.data, part.random.data);
    Advance(random.dropout, part.random.dropout);
    outputs.push_back(std::move(part.output));
  }
  return outputs;
}

}  // namespace lockstep::strategies
