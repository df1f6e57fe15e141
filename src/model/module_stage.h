#pragma once

// Stages of a user's model: a list of layer factories is cut into stages, and each rank makes the layers of its own
// stages. Any torch::nn module or function is a layer (Layer in layers.h); split_backward() splits their backward.
// Schedules forbid some layers (buffers in replicas, random numbers in a forward that runs twice); making a stage
// checks this.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "model/layers.h"
#include "model/message_layout.h"
#include "model/stage.h"

namespace chimera {

struct ModuleUse {
  bool replicated = false;  // several workers train replicas of it
  bool recomputed = false;  // a forward runs twice
};

/// Throws ConfigError, naming layer and module, for modules that must not be used like this: modules with buffers, and
/// modules that draw from torch's random generator. Functions are not checked.
void require_repeatable(const Layer& layer, std::int64_t index, const ModuleUse& use);

/// Loss of a micro-batch; sum and count can be added up over micro-batches.
struct LossSum {
  at::Tensor sum;          // []
  std::int64_t count = 0;  // elements in `sum`
};

/// The loss of a step is the total of all sums divided by the total of all counts.
struct Loss {
  std::function<LossSum(const at::Tensor& output, const at::Tensor& target)> sum;
  /// Returns the count of `sum` from the target only, because backwards start before the last forward of a step.
  std::function<std::int64_t(const at::Tensor& target)> count = [](const at::Tensor& target) { return target.numel(); };
};

struct ModuleStageSpec {
  StageId stage;
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  const Loss* loss = nullptr;  // borrowed; last stage only
};

/// Scope that restores the values of tensors at its end.
class ValueGuard {
 public:
  explicit ValueGuard(const std::vector<at::Tensor>& tensors);
  ~ValueGuard();
  ValueGuard(const ValueGuard&) = delete;
  ValueGuard& operator=(const ValueGuard&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;
};

/// Consecutive layers of a user's model. Parameter names are the global layer index and the name in the module:
/// `3.weight`.
class ModuleStage final : public Stage {
 public:
  /// A stage without trained parameters gets one without use. Throws ConfigError if a layer does not support `use`, a
  /// parameter is in use elsewhere, or trained parameters differ in type or device.
  ModuleStage(const ModuleStageSpec& spec, std::vector<Layer> layers, const ModuleUse& use);

  /// Takes and returns messages. Throws ConfigError if a layer fails, writes to the stage's input, or returns an output
  /// that does not fit output_layout(). Also throws it if the loss is not one number, or its count is not Loss::count.
  /// A UserCodeError keeps its cause.
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) override;

  /// Returns forward()'s output, from a run without a graph that restores buffers, and finds output_layout().
  [[nodiscard]] at::Tensor first_output(const at::Tensor& input, const MicroBatch& batch);
  /// Empty before the first forward, and on the last stage.
  [[nodiscard]] const MessageLayout& output_layout() const { return sent_; }
  void expect_output(MessageLayout layout) { sent_ = std::move(layout); }
  void expect_input(MessageLayout layout) { received_ = std::move(layout); }

  /// Returns all parameters, trained or not, and buffers, by global name.
  [[nodiscard]] std::vector<Parameter> values() const;
  [[nodiscard]] std::vector<at::Tensor> buffers() const;
  /// Returns for example `stage 1 (layers 2 to 3)`.
  [[nodiscard]] std::string name() const;

 private:
  TensorVector run(const at::Tensor& input, const MicroBatch& batch) const;
  TensorVector received(const at::Tensor& input, const MicroBatch& batch) const;
  at::Tensor scaled_loss(const TensorVector& values, const MicroBatch& batch) const;
  at::Tensor message(const TensorVector& values);

  ModuleStageSpec spec_;
  std::vector<Layer> layers_;
  MessageLayout received_;  // empty: one tensor
  MessageLayout sent_;      // empty: not known yet
};

/// Makes a stage from the factories of its layers, under a process-wide lock. Seeds torch's random generator from
/// `seed` and layer index, so initial values are equal for every partition and rank. Throws ConfigError if a factory
/// throws.
[[nodiscard]] std::unique_ptr<ModuleStage> make_module_stage(const ModuleStageSpec& spec,
                                                             const std::vector<LayerFactory>& layers,
                                                             const ModuleUse& use, std::uint64_t seed);

}  // namespace chimera
