// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/tensor.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

// One element as T; 16-bit floats go through float, bool is 0 or 1.
template <typename To, typename From>
To ConvertElement(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, bfloat16> || std::is_same_v<From, float16>) {
    return ConvertElement<To>(ToFloat(value));
  } else if constexpr (std::is_same_v<To, bfloat16>) {
    return ToBFloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, float16>) {
    return ToFloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From{};
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return static_cast<To>(Scalar(static_cast<double>(value)).AsInt64());
  } else {
    return static_cast<To>(value);
  }
}

// Calls `body(offset)` for each element in row-major order; offsets are in elements from the first.
template <typename Body>
void ForEachOffset(const Shape& shape, const Strides& strides, Body&& body) {
  const int rank = static_cast<int>(shape.size());
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  Shape index(shape.size(), 0);
  int64_t offset = 0;
  for (;;) {
    body(offset);
    int dim = rank - 1;
    for (; dim >= 0; --dim) {
      offset += strides[dim];
      if (++index[dim] < shape[dim]) break;
      offset -= strides[dim] * shape[dim];
      index[dim] = 0;
    }
    if (dim < 0) return;
  }
}

bool ReadableHere(Device device) {
  return device.type == DeviceType::kCpu || device.type == DeviceType::kHost;
}

void CheckReadable(const Tensor& tensor, const char* call) {
  if (!ReadableHere(tensor.device())) {
    throw FailedPreconditionError(absl::StrCat(
        call, ": ", tensor.DebugString(), " has no bytes that this thread can read; ",
        tensor.device() == kMeta ? "meta tensors have none, make it with {.device = Cpu()}"
                                 : "move it with To(x, Cpu())"));
  }
}

// The first element, once pending copies are done. REQUIRES: readable here, and T the dtype.
template <typename T>
T* Elements(const TensorImpl& impl) {
  impl.storage->WaitReady();
  return static_cast<T*>(impl.storage->data()) + impl.offset;
}

}  // namespace

TensorImpl::TensorImpl(RefPtr<Storage> storage_in, ShapeSpan shape_in, ShapeSpan strides_in,
                       int64_t offset_in, DType dtype_in, Device device_in)
    : storage(std::move(storage_in)),
      shape(shape_in.begin(), shape_in.end()),
      strides(strides_in.begin(), strides_in.end()),
      offset(offset_in),
      dtype(dtype_in),
      device(device_in) {
  numel = 1;
  for (int64_t size : shape) numel *= size;
  contiguous = IsContiguous(shape, strides);
}

TensorImpl::TensorImpl(RefPtr<Storage> storage_in, Shape shape_in, DType dtype_in, Device device_in)
    : storage(std::move(storage_in)),
      shape(std::move(shape_in)),
      strides(shape),  // copied and overwritten: cheaper than a vector of zeros
      dtype(dtype_in),
      device(device_in),
      contiguous(true) {
  // ContiguousStrides and the count in one loop: every op makes a tensor.
  int64_t step = 1;
  numel = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
    numel *= shape[i];
  }
}

void Tensor::ThrowUndefined() {
  throw FailedPreconditionError("Tensor: undefined; give it a value first, e.g. Zeros(shape)");
}

int64_t Tensor::size(int64_t dim) const {
  return shape()[NormalizeDim(dim, rank(), "Tensor::size")];
}

const RefPtr<Storage>& Tensor::storage() const {
  const TensorImpl& self = impl();
  if (!self.storage) {
    throw FailedPreconditionError(
        absl::StrCat("Tensor::storage: ", DebugString(), " has no bytes; meta tensors have none"));
  }
  return self.storage;
}

int64_t Tensor::version() const { return impl().storage ? impl().storage->version() : 0; }

template <typename T>
T Tensor::Item(std::initializer_list<int64_t> index) const {
  CheckReadable(*this, "Item");
  int64_t offset = 0;
  if (index.size() == 0) {
    if (numel() != 1) {
      throw InvalidArgumentError(absl::StrCat("Item: ", DebugString(), " has ", numel(),
                                              " elements; give the index of one"));
    }
  } else if (static_cast<int64_t>(index.size()) != rank()) {
    throw InvalidArgumentError(
        absl::StrCat("Item: ", index.size(), " indices for ", DebugString()));
  }
  int64_t dim = 0;
  for (int64_t position : index) {
    const int64_t size = shape()[dim];
    if (position < -size || position >= size) {
      throw OutOfRangeError(
          absl::StrCat("Item: index ", position, " in dimension ", dim, " of ", DebugString()));
    }
    offset += (position < 0 ? position + size : position) * strides()[dim];
    ++dim;
  }
  return VisitDType(dtype(), [&]<typename From>(TypeTag<From>) {
    return ConvertElement<T>(Elements<From>(impl())[offset]);
  });
}

template <typename T>
std::vector<T> Tensor::ToVector() const {
  CheckReadable(*this, "ToVector");
  std::vector<T> values;
  values.reserve(static_cast<size_t>(numel()));
  VisitDType(dtype(), [&]<typename From>(TypeTag<From>) {
    const From* data = Elements<From>(impl());
    ForEachOffset(shape(), strides(),
                  [&](int64_t offset) { values.push_back(ConvertElement<T>(data[offset])); });
  });
  return values;
}

void Tensor::SetData(const Tensor& source) const {
  TensorImpl& self = impl();
  const TensorImpl& other = source.impl();
  self.storage = other.storage;
  self.shape = other.shape;
  self.strides = other.strides;
  self.offset = other.offset;
  self.numel = other.numel;
  self.dtype = other.dtype;
  self.device = other.device;
  self.contiguous = other.contiguous;
  self.meta_origin = other.meta_origin;
}

std::string Tensor::DebugString() const {
  if (!defined()) return "undefined";
  return absl::StrCat(DTypeName(dtype()), ToString(shape()), " on ", ToString(device()));
}

Tensor Empty(ShapeSpan shape, const TensorOptions& options) {
  const int64_t count = NumElements(shape, "Empty");
  const DType dtype = options.dtype.value_or(DType::kFloat32);
  const Device device = options.device.value_or(CurrentDevice());
  if (count > std::numeric_limits<int64_t>::max() / ItemSize(dtype)) {
    throw InvalidArgumentError(absl::StrCat("Empty: shape ", ToString(shape), " of ",
                                            DTypeName(dtype), " has more than 2^63 bytes"));
  }
  RefPtr<Storage> storage;
  if (device != kMeta) storage = Storage::Allocate(device, count * ItemSize(dtype));
  Tensor made(
      MakeRef<TensorImpl>(std::move(storage), Shape(shape.begin(), shape.end()), dtype, device));
  if (device == kMeta) {
    if (MetaRecorder* recorder = CurrentThreadState().meta_recorder.get()) recorder->OnEmpty(made);
  }
  return made;
}

Tensor EmptyLike(const Tensor& tensor) {
  return Empty(tensor.shape(), {.dtype = tensor.dtype(), .device = tensor.device()});
}

template <typename T>
Tensor FromVector(const std::vector<T>& values, ShapeSpan shape, const TensorOptions& options) {
  const DType dtype = options.dtype.value_or(kDTypeOf<T>);
  const int64_t count = NumElements(shape, "FromVector");
  if (count != static_cast<int64_t>(values.size())) {
    throw InvalidArgumentError(absl::StrCat("FromVector: ", values.size(), " values for shape ",
                                            ToString(shape), ", which has ", count));
  }
  Tensor tensor = Empty(shape, {.dtype = dtype, .device = options.device});
  if (tensor.device() == kMeta) {
    if (MetaRecorder* recorder = CurrentThreadState().meta_recorder.get()) {
      recorder->OnValues(tensor, FromVector(values, shape, {.dtype = dtype, .device = kHost}));
    }
    return tensor;
  }
  CheckReadable(tensor, "FromVector");
  VisitDType(dtype, [&]<typename To>(TypeTag<To>) {
    To* data = Elements<To>(tensor.impl());
    for (int64_t i = 0; i < count; ++i) data[i] = ConvertElement<To>(static_cast<T>(values[i]));
  });
  return tensor;
}

Tensor FromStorage(RefPtr<Storage> storage, ShapeSpan shape, DType dtype, int64_t offset) {
  if (!storage) throw InvalidArgumentError("FromStorage: no storage given");
  const int64_t count = NumElements(shape, "FromStorage");
  const int64_t available = storage->bytes() / ItemSize(dtype);
  if (offset < 0 || offset > available || count > available - offset) {
    throw OutOfRangeError(absl::StrCat("FromStorage: ", DTypeName(dtype), ToString(shape),
                                       " at element ", offset, " does not fit into ",
                                       storage->bytes(), " bytes"));
  }
  const Device device = storage->device();
  return Tensor(MakeRef<TensorImpl>(std::move(storage), shape, ContiguousStrides(shape), offset,
                                    dtype, device));
}

#define LOCKSTEP_INSTANTIATE(T)                                     \
  template T Tensor::Item<T>(std::initializer_list<int64_t>) const; \
  template std::vector<T> Tensor::ToVector<T>() const;              \
  template Tensor FromVector<T>(const std::vector<T>&, ShapeSpan, const TensorOptions&)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(double);
LOCKSTEP_INSTANTIATE(bfloat16);
LOCKSTEP_INSTANTIATE(float16);
LOCKSTEP_INSTANTIATE(int64_t);
LOCKSTEP_INSTANTIATE(int32_t);
LOCKSTEP_INSTANTIATE(uint8_t);
LOCKSTEP_INSTANTIATE(bool);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep
