// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/cpu/onednn_matmul.h"

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parallel.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace lockstep::cpu {
namespace {

struct Key {
  OneDnnMatMul problem;
  int thread_count;
  friend bool operator==(const Key&, const Key&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Key& key) {
    const OneDnnMatMul& p = key.problem;
    return H::combine(std::move(h), static_cast<int>(p.dtype), p.m, p.n, p.k, p.a.transposed,
                      p.a.leading_dimension, p.b.transposed, p.b.leading_dimension, p.c_row_stride,
                      p.has_bias, key.thread_count);
  }
};

dnnl::memory::data_type DataType(DType dtype) {
  if (dtype == DType::kFloat32) return dnnl::memory::data_type::f32;
  if (dtype == DType::kBFloat16) return dnnl::memory::data_type::bf16;
  throw InternalError(absl::StrCat("oneDNN matmul: no support for ", DTypeName(dtype)));
}

Error Refused(const OneDnnMatMul& p, const dnnl::error& e) {
  return InternalError(absl::StrFormat("MatMul: oneDNN refused [%d, %d] x [%d, %d] %s: %s", p.m,
                                       p.k, p.k, p.n, DTypeName(p.dtype), e.what()));
}

dnnl::memory::desc Descriptor(int64_t rows, int64_t cols, const OneDnnOperand& operand,
                              dnnl::memory::data_type type) {
  return dnnl::memory::desc({rows, cols}, type,
                            operand.transposed ? dnnl::memory::dims{1, operand.leading_dimension}
                                               : dnnl::memory::dims{operand.leading_dimension, 1});
}

}  // namespace

// A primitive with the descriptors of its arguments. Immutable; execution is thread-safe because
// the scratchpad is the caller's.
struct OneDnnMatMulRunner::Primitive {
  Primitive(const dnnl::engine& engine, const OneDnnMatMul& p)
      : problem(p),
        a(Descriptor(p.m, p.k, p.a, DataType(p.dtype))),
        b(Descriptor(p.k, p.n, p.b, DataType(p.dtype))),
        c(Descriptor(p.m, p.n, {false, p.c_row_stride}, DataType(p.dtype))),
        bias({1, p.n}, DataType(p.dtype), dnnl::memory::dims{p.n, 1}) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::desc desc =
        p.has_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc primitive_desc(desc, attributes, engine);
    scratchpad = primitive_desc.scratchpad_desc();
    matmul = dnnl::matmul(primitive_desc);
  }

  OneDnnMatMul problem;
  dnnl::memory::desc a, b, c, bias, scratchpad;
  dnnl::matmul matmul;
};

// Least recently used out first.
class OneDnnMatMulRunner::Cache {
 public:
  std::shared_ptr<const Primitive> Get(const dnnl::engine& engine, const Key& key) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto found = index_.find(key);
      if (found != index_.end()) {
        entries_.splice(entries_.begin(), entries_, found->second);
        return found->second->second;
      }
    }
    // Made outside the lock: other shapes go on meanwhile. Two threads may make the same one.
    auto made = std::make_shared<const Primitive>(engine, key.problem);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = index_.find(key);
    if (found != index_.end()) return found->second->second;
    entries_.emplace_front(key, made);
    index_.emplace(key, entries_.begin());
    if (static_cast<int64_t>(entries_.size()) > kOneDnnMatMulCacheCapacity) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return made;
  }

  int64_t size() {
    std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int64_t>(entries_.size());
  }

 private:
  using Entry = std::pair<Key, std::shared_ptr<const Primitive>>;
  std::mutex mutex_;
  std::list<Entry> entries_;
  std::unordered_map<Key, std::list<Entry>::iterator, absl::Hash<Key>> index_;
};

// One for the process, and never destroyed: a thread may still multiply while it exits.
struct OneDnnMatMulRunner::Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  Cache cache;

  static Library& Get() {
    static Library* const library = new Library;
    return *library;
  }
};

bool AsOneDnnOperand(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                     OneDnnOperand* operand) {
  // The stride of a dimension of size 1 means nothing.
  if ((col_stride == 1 || cols == 1) && (row_stride >= cols || rows == 1)) {
    *operand = {false, rows == 1 ? cols : row_stride};
    return true;
  }
  if ((row_stride == 1 || rows == 1) && (col_stride >= rows || cols == 1)) {
    *operand = {true, cols == 1 ? rows : col_stride};
    return true;
  }
  return false;
}

OneDnnMatMulRunner::OneDnnMatMulRunner(KernelContext& context, const OneDnnMatMul& problem)
    : threads_(InParallelRegion() ? 1 : std::max(1, context.thread_count())) {
  Library& library = Library::Get();
  const RuntimeThreadsScope scope(threads_);
  try {
    primitive_ = library.cache.Get(library.engine, {problem, threads_});
  } catch (const dnnl::error& e) {
    throw Refused(problem, e);
  }
  const auto scratch_bytes = static_cast<int64_t>(primitive_->scratchpad.get_size());
  if (scratch_bytes > 0) scratch_ = context.Workspace(scratch_bytes);
}

void OneDnnMatMulRunner::Run(const void* a, const void* b, const void* bias, void* c) const {
  const dnnl::engine& engine = Library::Get().engine;
  const RuntimeThreadsScope scope(threads_);
  try {
    const auto memory = [&](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, engine, const_cast<void*>(data));
    };
    std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_SRC, memory(primitive_->a, a)},
                                                       {DNNL_ARG_WEIGHTS, memory(primitive_->b, b)},
                                                       {DNNL_ARG_DST, memory(primitive_->c, c)}};
    if (primitive_->problem.has_bias) {
      arguments.emplace(DNNL_ARG_BIAS, memory(primitive_->bias, bias));
    }
    if (scratch_ != nullptr) {
      arguments.emplace(DNNL_ARG_SCRATCHPAD, memory(primitive_->scratchpad, scratch_));
    }
    const dnnl::stream stream(engine);
    primitive_->matmul.execute(stream, arguments);
  } catch (const dnnl::error& e) {
    throw Refused(primitive_->problem, e);
  }
}

int64_t OneDnnMatMulCacheSize() { return OneDnnMatMulRunner::Library::Get().cache.size(); }

}  // namespace lockstep::cpu
