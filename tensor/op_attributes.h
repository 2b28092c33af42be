// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The attribute structs of the rows of op_list.inc. Dimensions are normalised (not negative) and
// sizes resolved by the public functions before they are stored here.
#ifndef LOCKSTEP_TENSOR_OP_ATTRIBUTES_H_
#define LOCKSTEP_TENSOR_OP_ATTRIBUTES_H_

#include "lockstep/tensor/attributes.h"

namespace lockstep {

// Full, Arange, RandomUniform, RandomNormal.
struct CreateAttributes : AttributesOf<CreateAttributes> {
  Shape shape;
  DType dtype = DType::kFloat32;
  Device device;
  template <typename V>
  void VisitFields(V&& v) {
    v("shape", shape);
    v("dtype", dtype);
    v("device", device);
  }
};

// Cast; the reductions Sum and Mean (dtype of the result).
struct CastAttributes : AttributesOf<CastAttributes> {
  DType dtype = DType::kFloat32;
  template <typename V>
  void VisitFields(V&& v) {
    v("dtype", dtype);
  }
};

// CopyToDevice.
struct DeviceAttributes : AttributesOf<DeviceAttributes> {
  Device device;
  bool non_blocking = false;
  template <typename V>
  void VisitFields(V&& v) {
    v("device", device);
    v("non_blocking", non_blocking);
  }
};

// Sum, Mean, Max, Min: `dims` sorted ascending without repeats; all of them reduces to one element.
struct ReduceAttributes : AttributesOf<ReduceAttributes> {
  Shape dims;
  bool keepdim = false;
  template <typename V>
  void VisitFields(V&& v) {
    v("dims", dims);
    v("keepdim", keepdim);
  }
};

// ArgMax, ArgMin over one dimension.
struct ArgReduceAttributes : AttributesOf<ArgReduceAttributes> {
  Dim dim = 0;
  bool keepdim = false;
  template <typename V>
  void VisitFields(V&& v) {
    v("dim", dim);
    v("keepdim", keepdim);
  }
};

// MatMul: transpose the last two dimensions of an operand first.
struct MatMulAttributes : AttributesOf<MatMulAttributes> {
  bool transpose_a = false;
  bool transpose_b = false;
  template <typename V>
  void VisitFields(V&& v) {
    v("transpose_a", transpose_a);
    v("transpose_b", transpose_b);
  }
};

// Softmax and LogSoftmax with their backward rows, Gather, ScatterAdd, IndexSelect, IndexAdd,
// Concat.
struct DimAttributes : AttributesOf<DimAttributes> {
  Dim dim = 0;
  template <typename V>
  void VisitFields(V&& v) {
    v("dim", dim);
  }
};

// View (target shape), Expand (target shape).
struct ShapeAttributes : AttributesOf<ShapeAttributes> {
  Shape shape;
  template <typename V>
  void VisitFields(V&& v) {
    v("shape", shape);
  }
};

// Permute: output dimension i is input dimension dims[i].
struct PermuteAttributes : AttributesOf<PermuteAttributes> {
  Shape dims;
  template <typename V>
  void VisitFields(V&& v) {
    v("dims", dims);
  }
};

struct SliceAttributes : AttributesOf<SliceAttributes> {
  Dim dim = 0;
  Dim start = 0;
  Dim length = 0;  // of the result
  Dim step = 1;
  template <typename V>
  void VisitFields(V&& v) {
    v("dim", dim);
    v("start", start);
    v("length", length);
    v("step", step);
  }
};

// SliceBackward: puts the gradient into zeros of size `size` along the sliced dimension.
struct SliceBackwardAttributes : AttributesOf<SliceBackwardAttributes> {
  Dim dim = 0;
  Dim start = 0;
  Dim step = 1;
  Dim size = 0;
  template <typename V>
  void VisitFields(V&& v) {
    v("dim", dim);
    v("start", start);
    v("step", step);
    v("size", size);
  }
};

struct SplitAttributes : AttributesOf<SplitAttributes> {
  Dim dim = 0;
  Shape sizes;
  template <typename V>
  void VisitFields(V&& v) {
    v("dim", dim);
    v("sizes", sizes);
  }
};

enum class GeluKind : uint8_t { kErf = 0, kTanh = 1 };
struct GeluAttributes : AttributesOf<GeluAttributes> {
  GeluKind kind = GeluKind::kErf;
  template <typename V>
  void VisitFields(V&& v) {
    v("kind", kind);
  }
};

// TriangularMask: keeps column - row <= diagonal (lower) or >= diagonal (upper), zeros the rest.
struct TriangleAttributes : AttributesOf<TriangleAttributes> {
  Dim diagonal = 0;
  bool upper = false;
  template <typename V>
  void VisitFields(V&& v) {
    v("diagonal", diagonal);
    v("upper", upper);
  }
};

// LayerNorm: over the last `normalized_rank` dimensions.
struct LayerNormAttributes : AttributesOf<LayerNormAttributes> {
  Dim normalized_rank = 1;
  template <typename V>
  void VisitFields(V&& v) {
    v("normalized_rank", normalized_rank);
  }
};

enum class Reduction : uint8_t { kNone = 0, kMean = 1, kSum = 2 };
struct CrossEntropyAttributes : AttributesOf<CrossEntropyAttributes> {
  Reduction reduction = Reduction::kMean;
  Dim ignore_index = -100;
  template <typename V>
  void VisitFields(V&& v) {
    v("reduction", reduction);
    v("ignore_index", ignore_index);
  }
};

struct AttentionAttributes : AttributesOf<AttentionAttributes> {
  bool causal = false;
  template <typename V>
  void VisitFields(V&& v) {
    v("causal", causal);
  }
};

// EmbeddingBackward (rows of the table), IndexAdd and ScatterAdd results come from their inputs.
struct EmbeddingBackwardAttributes : AttributesOf<EmbeddingBackwardAttributes> {
  Dim rows = 0;
  template <typename V>
  void VisitFields(V&& v) {
    v("rows", rows);
  }
};

struct AdamAttributes : AttributesOf<AdamAttributes> {
  bool decoupled_decay = false;  // AdamW: the decay scales the parameter, and not the gradient
  bool amsgrad = false;          // else the tensors of max_exp_avg_sqs are undefined
  bool maximize = false;
  template <typename V>
  void VisitFields(V&& v) {
    v("decoupled_decay", decoupled_decay);
    v("amsgrad", amsgrad);
    v("maximize", maximize);
  }
};

struct SgdAttributes : AttributesOf<SgdAttributes> {
  bool use_momentum = false;  // else the tensors of the list of momentum buffers are undefined
  bool first_step = false;    // buffers become the gradient, without dampening
  bool nesterov = false;
  bool maximize = false;
  template <typename V>
  void VisitFields(V&& v) {
    v("use_momentum", use_momentum);
    v("first_step", first_step);
    v("nesterov", nesterov);
    v("maximize", maximize);
  }
};

struct RmspropAttributes : AttributesOf<RmspropAttributes> {
  bool use_momentum = false;  // else the tensors of momenta are undefined
  bool centered = false;      // else those of grad_avgs
  bool maximize = false;
  template <typename V>
  void VisitFields(V&& v) {
    v("use_momentum", use_momentum);
    v("centered", centered);
    v("maximize", maximize);
  }
};

struct AdagradAttributes : AttributesOf<AdagradAttributes> {
  bool maximize = false;
  template <typename V>
  void VisitFields(V&& v) {
    v("maximize", maximize);
  }
};

struct NormAttributes : AttributesOf<NormAttributes> {
  bool infinity = false;  // maximum of absolute values instead of the 2-norm
  template <typename V>
  void VisitFields(V&& v) {
    v("infinity", infinity);
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OP_ATTRIBUTES_H_
