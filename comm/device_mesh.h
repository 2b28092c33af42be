// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// DeviceMesh: the ranks of a group as points of a grid with named dimensions.
//
//   DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 4}});
//   mesh.Group("shard")->AllGather(...);              // the 4 ranks of this replica
//   mesh.Coordinate("replicate");                     // which replica this rank is in
//
// Ranks are numbered row-major: the last dimension varies fastest, so that rank 6 above is at
// replicate 1, shard 2.
#ifndef LOCKSTEP_COMM_DEVICE_MESH_H_
#define LOCKSTEP_COMM_DEVICE_MESH_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

struct MeshDimension {
  std::string name;
  int size = 1;
};

class DeviceMesh {
 public:
  // Called by every rank of `world` with the same dimensions; makes one group a dimension and
  // blocks until they stand. Throws InvalidArgument (no dimensions, a name that is empty or comes
  // twice, a size below 1, sizes whose product is not the number of ranks, ranks that differ in
  // these), and as Split does.
  DeviceMesh(std::shared_ptr<Communicator> world, std::vector<MeshDimension> dimensions);

  const std::shared_ptr<Communicator>& world() const { return world_; }
  const std::vector<MeshDimension>& dimensions() const { return dimensions_; }

  // The calls below throw NotFound, naming the dimensions that exist.
  // The ranks that differ from this one in this coordinate only; rank i of it is at coordinate i.
  const std::shared_ptr<Communicator>& Group(absl::string_view name) const;
  int Coordinate(absl::string_view name) const;
  int size(absl::string_view name) const;

  // The rank in `world` at these coordinates, one for each dimension. Throws OutOfRange.
  int RankAt(const std::vector<int>& coordinates) const;

  // "{replicate: 2, shard: 4}".
  std::string ToString() const;

 private:
  size_t IndexOf(absl::string_view name) const;
  void CheckDimensions() const;

  std::shared_ptr<Communicator> world_;
  std::vector<MeshDimension> dimensions_;
  std::vector<int> coordinates_;
  std::vector<std::shared_ptr<Communicator>> groups_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_DEVICE_MESH_H_
