// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/parity/ops/bindings.h"

namespace lockstep::parity {

const BindingTable& Bindings() {
  static const BindingTable& table = *[] {
    auto* const all = new BindingTable;
    AddElementwiseBindings(*all);
    AddReductionBindings(*all);
    AddNeuralBindings(*all);
    AddIndexingBindings(*all);
    AddViewBindings(*all);
    AddCreationAndUpdateBindings(*all);
    AddModuleBindings(*all);
    return all;
  }();
  return table;
}

}  // namespace lockstep::parity
