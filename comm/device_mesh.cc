// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/device_mesh.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/byte_strings.h"
#include "lockstep/comm/subgroups.h"

namespace lockstep::comm {

DeviceMesh::DeviceMesh(std::shared_ptr<Communicator> world, std::vector<MeshDimension> dimensions)
    : world_(std::move(world)), dimensions_(std::move(dimensions)) {
  CheckDimensions();
  int rest = world_->rank();
  coordinates_.resize(dimensions_.size());
  for (size_t d = dimensions_.size(); d-- > 0;) {
    coordinates_[d] = rest % dimensions_[d].size;
    rest /= dimensions_[d].size;
  }
  for (size_t d = 0; d < dimensions_.size(); ++d) {
    // One colour for each line along this dimension: the rank where it begins.
    std::vector<int> begin = coordinates_;
    begin[d] = 0;
    groups_.push_back(Split(*world_, RankAt(begin), coordinates_[d]));
  }
}

void DeviceMesh::CheckDimensions() const {
  if (world_ == nullptr) throw lockstep::InvalidArgumentError("DeviceMesh: the group is null");
  // First, so that no rank goes on while another throws.
  const std::vector<std::string> all = AllGatherBytes(*world_, ToString());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw lockstep::InvalidArgumentError(absl::StrCat("DeviceMesh: rank 0 has dimensions ", all[0],
                                                      " and rank ", rank, " ", all[rank]));
  }
  int64_t product = 1;
  std::set<std::string> names;
  for (const MeshDimension& dimension : dimensions_) {
    if (dimension.name.empty() || !names.insert(dimension.name).second || dimension.size < 1) {
      throw lockstep::InvalidArgumentError(absl::StrCat(
          "DeviceMesh: dimension \"", dimension.name, "\" of size ", dimension.size, " in ",
          ToString(), ": names are not empty and come once, sizes are at least 1"));
    }
    product *= dimension.size;
    if (product > world_->size()) break;
  }
  if (dimensions_.empty() || product != world_->size()) {
    throw lockstep::InvalidArgumentError(
        absl::StrCat("DeviceMesh: the sizes of ", ToString(), " do not multiply to the ",
                     world_->size(), " ranks of group \"", world_->group_name(), "\""));
  }
}

size_t DeviceMesh::IndexOf(absl::string_view name) const {
  for (size_t d = 0; d < dimensions_.size(); ++d) {
    if (dimensions_[d].name == name) return d;
  }
  throw lockstep::NotFoundError(
      absl::StrCat("DeviceMesh: no dimension \"", name, "\" in ", ToString()));
}

const std::shared_ptr<Communicator>& DeviceMesh::Group(absl::string_view name) const {
  return groups_[IndexOf(name)];
}

int DeviceMesh::Coordinate(absl::string_view name) const { return coordinates_[IndexOf(name)]; }

int DeviceMesh::size(absl::string_view name) const { return dimensions_[IndexOf(name)].size; }

int DeviceMesh::RankAt(const std::vector<int>& coordinates) const {
  bool inside = coordinates.size() == dimensions_.size();
  int rank = 0;
  for (size_t d = 0; inside && d < coordinates.size(); ++d) {
    inside = coordinates[d] >= 0 && coordinates[d] < dimensions_[d].size;
    rank = rank * dimensions_[d].size + coordinates[d];
  }
  if (inside) return rank;
  throw lockstep::OutOfRangeError(absl::StrCat("DeviceMesh: [", absl::StrJoin(coordinates, ", "),
                                               "] is not a point of ", ToString()));
}

std::string DeviceMesh::ToString() const {
  const auto text = [](std::string* out, const MeshDimension& dimension) {
    absl::StrAppend(out, dimension.name, ": ", dimension.size);
  };
  return absl::StrCat("{", absl::StrJoin(dimensions_, ", ", text), "}");
}

}  // namespace lockstep::comm
