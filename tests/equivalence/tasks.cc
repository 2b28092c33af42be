// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tests/equivalence/tasks.h"

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/models/gpt2.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::equivalence {
namespace {

class TwiceNet : public nn::Module {
 public:
  TwiceNet() {
    RegisterModule("first", first_);
    RegisterModule("middle", middle_);
    RegisterModule("last", last_);
  }

  Tensor operator()(const Tensor& x) {
    return CallWithHooks({x}, [this](TensorSpan in) -> TensorList {
      Tensor h = Tanh((*first_)(in[0]));
      for (int use = 0; use < 2; ++use) h = Tanh((*middle_)(h));
      return {(*last_)(h)};
    })[0];
  }

 private:
  std::shared_ptr<nn::Linear> first_ = std::make_shared<nn::Linear>(5, 9);
  std::shared_ptr<nn::Linear> middle_ = std::make_shared<nn::Linear>(9, 9);
  std::shared_ptr<nn::Linear> last_ = std::make_shared<nn::Linear>(9, 3);
};

}  // namespace

Tensor Waves(int64_t first, int64_t rows, int64_t columns, double frequency) {
  std::vector<double> values;
  for (int64_t i = first * columns; i < (first + rows) * columns; ++i) {
    values.push_back(std::sin(frequency * static_cast<double>(i) + 0.1));
  }
  return FromVector<double>(values, {rows, columns}, {.dtype = DType::kFloat32});
}

namespace {

// Ranks whose buffers differ compute something else.
class ShiftedMlp : public nn::UnaryModule {
 public:
  explicit ShiftedMlp(const models::MlpConfig& config)
      : mlp_(RegisterModule("mlp", std::make_shared<models::Mlp>(config))) {
    RegisterBuffer("shift", &shift_, RandomUniform({config.sizes[0]}, -1, 1));
  }

  Tensor Forward(const Tensor& x) override { return (*mlp_)(x + lockstep::To(shift_, x.dtype())); }
  std::string Description() const override { return "ShiftedMlp"; }

 private:
  std::shared_ptr<models::Mlp> mlp_;
  Tensor shift_;
};

}  // namespace

Task MlpTask() {
  auto model = std::make_shared<ShiftedMlp>(
      models::MlpConfig{.sizes = {5, 17, 9, 3}, .activation = models::MlpActivation::kTanh});
  return {model, [model](int64_t first, int64_t count) {
            return MseLoss((*model)(Waves(first, count, 5, 0.7)), Waves(first, count, 3, 0.31));
          }};
}

Task TwiceTask() {
  auto model = std::make_shared<TwiceNet>();
  return {model, [model](int64_t first, int64_t count) {
            return MseLoss((*model)(Waves(first, count, 5, 0.7)), Waves(first, count, 3, 0.31));
          }};
}

Task GptTask() {
  auto model = std::make_shared<models::Gpt2>(
      models::Gpt2Config{.layers = 2, .heads = 2, .width = 16, .block = 8, .vocabulary = 31});
  return {model, [model](int64_t first, int64_t count) {
            std::vector<int64_t> ids, targets;
            for (int64_t row = first; row < first + count; ++row) {
              for (int64_t i = 0; i < 8; ++i) {
                ids.push_back((row * row + 3 * i) % 31);
                targets.push_back((row * row + 3 * i + 3) % 31);
              }
            }
            return model->Loss(FromVector<int64_t>(ids, {count, 8}),
                               FromVector<int64_t>(targets, {count, 8}));
          }};
}

}  // namespace lockstep::equivalence
