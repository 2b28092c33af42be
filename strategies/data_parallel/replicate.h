// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Replicate: tensors of one device, on several. Replicas: the same, kept from call to call, so that
// only what changed is copied.
//
//   Replicas replicas(CpuDevices(3));
//   auto copies = replicas.Update(model.Parameters());       // copies[1][i]: parameter i on cpu:1
//   ...
//   optimizer.Step();
//   copies = replicas.Update(model.Parameters());            // copies what the step has changed
//
// Differentiable: the gradient of a copy is moved to the tensor's device as soon as it is complete,
// added to the tensor's there, and freed on the copy's device. Sums are in the order of devices,
// whatever the timing.
#ifndef LOCKSTEP_STRATEGIES_DATA_PARALLEL_REPLICATE_H_
#define LOCKSTEP_STRATEGIES_DATA_PARALLEL_REPLICATE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

struct ReplicaStatistics {
  int64_t copied_tensors = 0;  // by the last Update()
  int64_t copied_bytes = 0;
  int64_t made_tensors = 0;  // copies that had no place yet, since the start
};

// Not thread-safe.
class Replicas {
 public:
  // The tensors are on devices[0]. Throws as CheckDevices (device_list.h) does.
  explicit Replicas(std::vector<Device> devices);

  // result[k][i] is tensors[i] on device k, for the first `count` devices (all by default); on
  // device 0 it is the tensor itself. Each tensor appears once in `tensors`.
  //
  // Where gradients are recorded, copies of tensors that require one have a history of their own in
  // each call. All others are the kept copies: what a program writes to them stays until the
  // original changes or the next Update(), which makes them equal again.
  //
  // Writing to a kept copy counts as an in-place change for graphs of earlier calls. Copies have
  // the memory category of their originals. Those of tensors that a call does not mention are
  // dropped.
  //
  // Throws InvalidArgument (an undefined tensor, or one on another device, by its number),
  // OutOfRange (count), ResourceExhausted.
  std::vector<std::vector<Tensor>> Update(TensorSpan tensors);
  std::vector<std::vector<Tensor>> Update(TensorSpan tensors, size_t count);

  const std::vector<Device>& devices() const { return devices_; }
  const ReplicaStatistics& statistics() const { return statistics_; }

 private:
  struct Copy {
    Tensor tensor;           // undefined: not made yet
    RefPtr<Storage> source;  // the original's memory, and its version, when it was copied
    int64_t source_version = 0;
    int64_t version = 0;  // the copy's own then
  };
  struct Entry {
    Tensor original;           // held, so that its address is not another's
    std::vector<Copy> copies;  // for devices 1, 2, ...
    int64_t last_call = 0;
  };

  void Check(TensorSpan tensors, size_t count) const;
  void Refresh(const Tensor& original, Device device, Copy& copy);

  std::vector<Device> devices_;
  absl::flat_hash_map<const TensorImpl*, Entry> entries_;
  ReplicaStatistics statistics_;
  int64_t calls_ = 0;
};

// Copies that nobody keeps: Replicas(devices).Update(tensors).
std::vector<std::vector<Tensor>> Replicate(TensorSpan tensors, absl::Span<const Device> devices);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DATA_PARALLEL_REPLICATE_H_
