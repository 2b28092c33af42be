// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/docs/ops_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "lockstep/tensor/op.h"

namespace lockstep::docs {
namespace {

const char* KindTitle(OpKind kind) {
  switch (kind) {
    case OpKind::kCreation:
      return "Creation";
    case OpKind::kElementwise:
      return "Elementwise";
    case OpKind::kBroadcasting:
      return "Broadcasting";
    case OpKind::kReduction:
      return "Reduction";
    case OpKind::kContraction:
      return "Contraction";
    case OpKind::kNormalization:
      return "Normalisation and losses";
    case OpKind::kIndexing:
      return "Gather and scatter";
    case OpKind::kView:
      return "Views";
    case OpKind::kCopy:
      return "Copies";
    case OpKind::kRandom:
      return "Random";
    case OpKind::kUpdate:
      break;
  }
  return "Updates";
}

const char* AmpText(AmpClass amp) {
  switch (amp) {
    case AmpClass::kUntouched:
      return "as given";
    case AmpClass::kLowPrecision:
      return "low precision";
    case AmpClass::kFp32:
      return "float32";
    case AmpClass::kFp32IfUnset:
      return "float32 unless set";
    case AmpClass::kPromote:
      return "widest input";
    case AmpClass::kRefused:
      break;
  }
  return "refused";
}

// "parameters*, gradients*": written inputs in bold.
std::string InputText(const OpInfo& info) {
  std::string text;
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    const OpInfo::Input& input = info.inputs[i];
    const std::string name =
        absl::StrCat(input.name, input.list ? "\\*" : "", input.optional ? "?" : "");
    const char* mark = (info.mutates >> i) & 1 ? "**" : "";
    absl::StrAppend(&text, i == 0 ? "" : ", ", mark, name, mark);
  }
  return text;
}

std::string OutputText(const OpInfo& info) {
  std::string text;
  for (const std::string& output : info.outputs) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", output, info.output_list ? "\\*" : "");
  }
  return text;
}

}  // namespace

std::string OpsTable() {
  std::string text;
  absl::string_view title;
  for (int i = 0; i < static_cast<int>(OpId::kBuiltinCount); ++i) {
    const OpInfo& info = GetOpInfo(static_cast<OpId>(i));
    if (title != KindTitle(info.kind)) {
      title = KindTitle(info.kind);
      absl::StrAppend(&text, text.empty() ? "" : "\n", "### ", title, "\n\n",
                      "| op | inputs | outputs | autocast CPU | autocast CUDA | gradient | does |\n"
                      "|---|---|---|---|---|---|---|\n");
    }
    absl::StrAppend(&text, "| `", info.name, "` | ", InputText(info), " | ", OutputText(info),
                    " | ", AmpText(info.amp_cpu), " | ", AmpText(info.amp_cuda), " | ",
                    info.differentiable ? "yes" : "no", " | ",
                    absl::StrReplaceAll(info.doc, {{"|", "\\|"}, {"*", "\\*"}}), " |\n");
  }
  return text;
}

}  // namespace lockstep::docs
