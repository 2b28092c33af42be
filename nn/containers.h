// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Containers: Sequential runs its modules one after the other; ModuleList holds modules for a
// Forward of your own. Both name their children 0, 1, ... as PyTorch does.
//
//   nn::Sequential net;
//   net.Emplace<nn::Linear>(4, 16);          // "0.weight", "0.bias"
//   net.Emplace<nn::Relu>();
//   net.Emplace<nn::Linear>(16, 3);          // "2.weight", "2.bias"
//   Tensor y = net(x);
//
//   nn::ModuleList<Block> blocks;            // typed: blocks[i] is a Block
//   for (int i = 0; i < layers; ++i) blocks.Emplace(config);
#ifndef LOCKSTEP_NN_CONTAINERS_H_
#define LOCKSTEP_NN_CONTAINERS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/module.h"

namespace lockstep::nn {

class Sequential : public UnaryModule {
 public:
  Sequential() = default;
  explicit Sequential(const std::vector<std::shared_ptr<UnaryModule>>& modules);

  // Adds a module at the end. Throws InvalidArgument when it is null.
  Sequential& Append(std::shared_ptr<UnaryModule> module);
  // Makes one with these constructor arguments and adds it.
  template <typename T, typename... Args>
  std::shared_ptr<T> Emplace(Args&&... args) {
    auto module = std::make_shared<T>(std::forward<Args>(args)...);
    Append(module);
    return module;
  }

  // An empty one returns x itself.
  Tensor Forward(const Tensor& x) override;
  std::string Description() const override { return "Sequential"; }

  size_t size() const { return modules_.size(); }
  // Throws OutOfRange.
  const std::shared_ptr<UnaryModule>& operator[](size_t index) const;

 private:
  std::vector<std::shared_ptr<UnaryModule>> modules_;
};

template <typename T = Module>
class ModuleList : public Module {
 public:
  ModuleList() = default;

  void Append(std::shared_ptr<T> module) {
    modules_.push_back(RegisterModule(absl::StrCat(modules_.size()), std::move(module)));
  }
  template <typename U = T, typename... Args>
  std::shared_ptr<U> Emplace(Args&&... args) {
    auto module = std::make_shared<U>(std::forward<Args>(args)...);
    Append(module);
    return module;
  }

  size_t size() const { return modules_.size(); }
  // Throws OutOfRange.
  const std::shared_ptr<T>& operator[](size_t index) const {
    if (index >= size()) {
      throw OutOfRangeError(
          absl::StrCat("nn::ModuleList: index ", index, " in a list of ", size()));
    }
    return modules_[index];
  }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

  std::string Description() const override { return "ModuleList"; }

 private:
  std::vector<std::shared_ptr<T>> modules_;
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_CONTAINERS_H_
