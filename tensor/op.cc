// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/op.h"

#include <array>
#include <atomic>
#include <deque>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape_rules.h"

namespace lockstep {
namespace {

OpInfo MakeBuiltin(absl::string_view name, absl::string_view inputs, absl::string_view outputs,
                   OpKind kind, int view_of, uint32_t mutates, AmpClass amp_cpu, AmpClass amp_cuda,
                   bool differentiable, CostRule cost, absl::string_view doc, ShapeRule rule) {
  OpInfo info;
  info.name = std::string(name);
  info.inputs = ParseInputs(inputs);
  for (absl::string_view output : absl::StrSplit(outputs, ", ", absl::SkipEmpty())) {
    info.output_list |= absl::ConsumeSuffix(&output, "*");
    info.outputs.emplace_back(output);
  }
  info.kind = kind;
  info.view_of = view_of;
  info.mutates = mutates;
  info.amp_cpu = amp_cpu;
  info.amp_cuda = amp_cuda;
  info.differentiable = differentiable;
  info.cost = cost;
  info.doc = std::string(doc);
  info.shape_rule = rule;
  return info;
}

// Rows by id, null until there is one.
std::array<std::atomic<const OpInfo*>, kMaximumOpCount>& RowPointers() {
  static constinit std::array<std::atomic<const OpInfo*>, kMaximumOpCount> pointers{};
  return pointers;
}

// The table. Rows are never removed or changed, so references to them stay good.
struct OpTable {
  std::deque<OpInfo> rows;
  absl::flat_hash_map<std::string, OpId> by_name;
  std::atomic<int> count{0};
  std::mutex mutex;

  OpTable() {
    constexpr bool kYes = true;
    constexpr bool kNo = false;
#define LOCKSTEP_OP(name, inputs, outputs, kind, view_of, mutates, amp_cpu, amp_cuda, gradient,   \
                    cost, doc)                                                                    \
  Append(MakeBuiltin(#name, inputs, outputs, OpKind::k##kind, view_of, mutates,                   \
                     AmpClass::k##amp_cpu, AmpClass::k##amp_cuda, k##gradient, CostRule::k##cost, \
                     doc, &rules::Infer##name));
#include "lockstep/tensor/op_list.inc"
#undef LOCKSTEP_OP
  }

  // REQUIRES: mutex held, or construction.
  OpId Append(OpInfo info) {
    for (const OpInfo::Input& input : info.inputs) info.has_lists |= input.list;
    const OpId id = static_cast<OpId>(rows.size());
    by_name.emplace(info.name, id);
    rows.push_back(std::move(info));
    RowPointers()[rows.size() - 1].store(&rows.back(), std::memory_order_release);
    count.store(static_cast<int>(rows.size()), std::memory_order_release);
    return id;
  }
};

OpTable& Table() {
  static auto* table = new OpTable;
  return *table;
}

}  // namespace

std::vector<OpInfo::Input> ParseInputs(absl::string_view text) {
  std::vector<OpInfo::Input> inputs;
  for (absl::string_view part : absl::StrSplit(text, ", ", absl::SkipEmpty())) {
    OpInfo::Input input;
    input.optional = absl::ConsumeSuffix(&part, "?");
    input.list = absl::ConsumeSuffix(&part, "*");
    input.name = std::string(part);
    inputs.push_back(std::move(input));
  }
  return inputs;
}

OpId RegisterOp(OpInfo info) {
  if (info.name.empty() || info.doc.empty() || info.shape_rule == nullptr) {
    throw InvalidArgumentError(absl::StrCat("RegisterOp: row '", info.name,
                                            "' needs a name, a doc line and a shape rule"));
  }
  OpTable& table = Table();
  std::lock_guard<std::mutex> lock(table.mutex);
  if (table.by_name.contains(info.name)) {
    throw AlreadyExistsError(absl::StrCat("RegisterOp: there is already an op ", info.name));
  }
  if (static_cast<int>(table.rows.size()) == kMaximumOpCount) {
    throw ResourceExhaustedError(
        absl::StrCat("RegisterOp: ", info.name, ": there are ", kMaximumOpCount, " ops already"));
  }
  return table.Append(std::move(info));
}

const OpInfo& GetOpInfo(OpId op) {
  const int index = static_cast<int>(op);
  if (index < kMaximumOpCount) {
    if (const OpInfo* row = RowPointers()[index].load(std::memory_order_acquire)) return *row;
    Table();  // the first call of the process makes the built-in rows
    if (const OpInfo* row = RowPointers()[index].load(std::memory_order_acquire)) return *row;
  }
  throw OutOfRangeError(absl::StrCat("GetOpInfo: no op ", index, "; there are ", OpCount()));
}

bool WritesInput(const OpInfo& info, const OpCall& call, size_t index) {
  if (call.in_place && index == 0) return true;
  if (info.mutates == 0) return false;
  if (!info.has_lists) return (info.mutates >> index & 1) != 0;
  size_t lists = 0;
  for (const OpInfo::Input& input : info.inputs) lists += input.list;
  const size_t length = (call.inputs.size() - (info.inputs.size() - lists)) / lists;
  size_t end = 0;
  for (size_t group = 0; group < info.inputs.size(); ++group) {
    end += info.inputs[group].list ? length : 1;
    if (index < end) return (info.mutates >> group & 1) != 0;
  }
  return false;
}

OpId FindOp(absl::string_view name) {
  OpTable& table = Table();
  std::lock_guard<std::mutex> lock(table.mutex);
  auto found = table.by_name.find(name);
  if (found == table.by_name.end()) throw NotFoundError(absl::StrCat("FindOp: no op ", name));
  return found->second;
}

int OpCount() { return Table().count.load(std::memory_order_acquire); }

OpCost EstimateCost(const OpCall& call, const SpecList& outputs) {
  const OpInfo& info = GetOpInfo(call.op);
  OpCost cost;
  if (info.cost == CostRule::kNone) return cost;
  auto elements = [](ShapeSpan shape) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    return count;
  };
  int64_t read = 0;
  for (const Tensor& input : call.inputs) {
    if (!input.defined()) continue;
    read += input.numel();
    cost.bytes += input.bytes();
  }
  int64_t written = 0;
  for (const TensorSpec& spec : outputs) {
    written += elements(spec.shape);
    cost.bytes += elements(spec.shape) * ItemSize(spec.dtype);
  }
  switch (info.cost) {
    case CostRule::kNone:
    case CostRule::kCopy:
      break;
    case CostRule::kElementwise:
      cost.flops = static_cast<double>(std::max(read, written));
      break;
    case CostRule::kMatMul: {
      // The contracted size follows from the element counts: inputs[0] has K elements a row.
      const Tensor& a = call.inputs[0];
      const bool transpose =
          call.op == OpId::kMatMul && call.attributes.As<MatMulAttributes>().transpose_a;
      const int64_t inner = a.rank() == 0 ? 1 : a.size(transpose && a.rank() > 1 ? -2 : -1);
      cost.flops = 2.0 * static_cast<double>(inner) *
                   static_cast<double>(outputs.empty() ? 0 : elements(outputs[0].shape));
      break;
    }
    case CostRule::kAttention: {
      const bool backward = call.op == OpId::kScaledDotProductAttentionBackward;
      const Tensor& q = call.inputs[backward ? 1 : 0];
      const Tensor& k = call.inputs[backward ? 2 : 1];
      const double products = backward ? 5.0 : 2.0;
      const double visible = call.attributes.As<AttentionAttributes>().causal ? 0.5 : 1.0;
      cost.flops = products * 2.0 * visible * static_cast<double>(q.numel()) *
                   static_cast<double>(k.size(-2));
      break;
    }
  }
  return cost;
}

}  // namespace lockstep
