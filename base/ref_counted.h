// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Intrusive reference counting: one pointer, one allocation, and the address is the identity.
//
//   class Storage : public RefCounted<Storage> { ... };
//   RefPtr<Storage> storage = MakeRef<Storage>(args...);
#ifndef LOCKSTEP_BASE_REF_COUNTED_H_
#define LOCKSTEP_BASE_REF_COUNTED_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep {

// Base of a counted class. `T` is deleted as T, so T needs no virtual destructor.
template <typename T>
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void AddRef() const { count_.fetch_add(1, std::memory_order_relaxed); }
  void Release() const {
    // A sole owner needs no atomic read-modify-write: nobody else can add a reference.
    if (count_.load(std::memory_order_acquire) == 1 ||
        count_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete static_cast<const T*>(this);
    }
  }
  int32_t ref_count() const { return count_.load(std::memory_order_acquire); }

 protected:
  ~RefCounted() = default;

 private:
  template <typename>
  friend class RefPtr;
  mutable std::atomic<int32_t> count_{0};
};

// Owning pointer to a RefCounted object; null by default. Distinct RefPtr objects may be used from
// distinct threads; one RefPtr object is not synchronised.
template <typename T>
class RefPtr {
 public:
  RefPtr() = default;
  RefPtr(std::nullptr_t) {}  // NOLINT
  explicit RefPtr(T* pointer) : pointer_(pointer) {
    if (pointer_ != nullptr) pointer_->AddRef();
  }
  // The first owner of an object that no other thread knows yet: counts without an atomic
  // read-modify-write. REQUIRES: pointer is not null and ref_count() == 0.
  static RefPtr First(T* pointer) {
    pointer->count_.store(1, std::memory_order_relaxed);
    RefPtr first;
    first.pointer_ = pointer;
    return first;
  }
  // A pointer that owns nothing, for views of pointers that outlive it. Never destroy or assign it;
  // copies of it are ordinary owners.
  static RefPtr Borrow(T* pointer) {
    RefPtr borrowed;
    borrowed.pointer_ = pointer;
    return borrowed;
  }
  RefPtr(const RefPtr& other) : RefPtr(other.pointer_) {}
  RefPtr(RefPtr&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  RefPtr& operator=(RefPtr other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~RefPtr() {
    if (pointer_ != nullptr) pointer_->Release();
  }

  T* get() const { return pointer_; }
  T* operator->() const { return pointer_; }
  T& operator*() const { return *pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }
  friend bool operator==(const RefPtr&, const RefPtr&) = default;

 private:
  T* pointer_ = nullptr;
};

template <typename T, typename... Args>
RefPtr<T> MakeRef(Args&&... args) {
  return RefPtr<T>::First(new T(std::forward<Args>(args)...));
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_REF_COUNTED_H_
