#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/ids.h"
#include "model/layers.h"
#include "model/stage.h"

// Which modules give the same numbers however a model is cut, copied and run.

// A stage made of a user's modules.

namespace chimera {

/// What the runtime does with a stage that a module must allow for.
struct ModuleUse {
  bool replicated = false;  // several workers train copies of it
  bool recomputed = false;  // a forward runs twice
};

/// Throws ConfigError, naming the layer and the module within it, for what such a use makes wrong: modules with
/// buffers, which copies would fill differently and recomputation twice; and modules that draw random numbers from
/// torch's generator when training, as recomputation would draw others. Functions are not looked into.
void require_repeatable(const Layer& layer, std::int64_t index, const ModuleUse& use);

/// The loss of a micro-batch, as two numbers that can be added up over micro-batches.
struct LossSum {
  at::Tensor sum;          // [], over the elements counted
  std::int64_t count = 0;  // of them
};

/// The loss function, applied to the last layer's output. The loss of a step is the sum of its micro-batches' sums
/// divided by that of their counts; each micro-batch back-propagates its sum times 1 / (count of the step).
struct Loss {
  std::function<LossSum(const at::Tensor& output, const at::Tensor& target)> sum;
  /// What `sum` will count, from the target alone: backwards start before the last forward of a step has run.
  std::function<std::int64_t(const at::Tensor& target)> count = [](const at::Tensor& target) { return target.numel(); };
};

/// The part of a model that a stage holds.
struct ModuleStageSpec {
  StageId stage;
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  const Loss* loss = nullptr;  // borrowed; of the last stage
};

/// The tensor's sizes and type.
struct TensorShape {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

/// Layers of a user's model, one after the other. A parameter's name is the global layer index and its name in the
/// module: `3.weight`. Its backward splits through the engine (model/split_backward.h). Of a MicroBatch it reads
/// `tokens`, the input of the model, of any shape, `targets`, likewise, `token_loss_scale` and `dropout`.
class ModuleStage final : public Stage {
 public:
  /// Takes ownership of `layers`. Throws ConfigError where a layer does not allow for `use` or has a parameter in use
  /// elsewhere, where parameters differ in type, and where none is trained.
  ModuleStage(const ModuleStageSpec& spec, std::vector<Layer> layers, const ModuleUse& use);

  /// Throws ConfigError, naming stage and layer, where a layer fails, writes to the stage's input, gives a loss that
  /// counts otherwise than Loss::count, or an output that is not what expect_output() said. Lets UserCodeError through.
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) override;

  /// What forward() gives for this input, found by running it without a graph; buffers are as before afterwards.
  [[nodiscard]] TensorShape output_shape(const at::Tensor& input, const MicroBatch& batch);
  /// From now on forward() makes sure that its output has this shape.
  void expect_output(TensorShape shape) { expected_ = std::move(shape); }

  /// All parameters and buffers of its modules, those that are not trained too, by global name.
  [[nodiscard]] std::vector<Parameter> values() const;
  /// `stage 1 (layers 2 to 3)`.
  [[nodiscard]] std::string name() const;

 private:
  at::Tensor run(const at::Tensor& input, const MicroBatch& batch) const;
  at::Tensor scaled_loss(const at::Tensor& output, const MicroBatch& batch) const;
  void require_expected(const at::Tensor& output) const;

  ModuleStageSpec spec_;
  std::vector<Layer> layers_;
  TensorShape expected_;  // no sizes: anything
};

/// Calls the factories of a stage's layers and makes the stage. They run under one lock of the process, with torch's
/// random generator at a state that depends on `seed` and the layer alone: initial values drawn from it are the same
/// for every partition and rank.
[[nodiscard]] std::unique_ptr<ModuleStage> make_module_stage(const ModuleStageSpec& spec,
                                                             const std::vector<LayerFactory>& layers,
                                                             const ModuleUse& use, std::uint64_t seed);

}  // namespace chimera
