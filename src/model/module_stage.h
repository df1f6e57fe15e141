#pragma once

// Stages of a user's model. The user gives a list of layer factories, which is divided into stages; each rank makes the
// layers of its own stages. Any torch::nn module or function can be a layer (Layer in layers.h). For schedules that
// split backwards, split_backward() splits its backward into an input gradient and a weight gradient. Some layers
// cannot be used with some schedules: layers with buffers if the model has replicas, and layers with random numbers if
// a forward runs twice. The constructor of a stage checks this.
//
// A stage may send several tensors of different types to the next one, and some of them may be undefined (`None` in
// Python). A transport carries one floating-point tensor per message, so pack() joins the tensors into one, and
// unpack() restores them. Both stages use the same MessageLayout, which the sender's first micro-batch determines.

#include <ATen/core/Tensor.h>
#include <c10/util/ScopeExit.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "model/layers.h"
#include "model/stage.h"

namespace chimera {

/// Description of one tensor of a message.
struct TensorShape {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;  // at::ScalarType::Undefined: an undefined tensor
  bool has_gradient = true;           // whether backward sends its gradient back
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

/// The tensors that a stage sends, equal for all micro-batches.
using MessageLayout = std::vector<TensorShape>;

/// Returns why a message cannot carry the values, for example because a tensor is sparse or complex; empty if it can.
[[nodiscard]] std::string find_fault(const TensorVector& values);

/// Returns the layout of a message with these values.
[[nodiscard]] MessageLayout message_layout_of(const TensorVector& values);
/// Returns whether pack() accepts values of the layout `found` for a message of `layout`: sizes and types must be
/// equal, but a tensor in `found` need not have a gradient if `layout` has one.
[[nodiscard]] bool fits(const MessageLayout& found, const MessageLayout& layout);

/// Returns whether the layout is a single floating-point tensor with at least one dimension, which is sent as it is.
/// Other layouts are packed.
[[nodiscard]] bool is_plain(const MessageLayout& layout);
/// Returns size and type of the tensor that the transport carries.
[[nodiscard]] TensorShape message_shape(const MessageLayout& layout);
/// Returns the message for the values. If they are packed, it has one dimension, and a type that represents all
/// floating-point tensors exactly; an integer takes one element per byte.
[[nodiscard]] at::Tensor pack(const TensorVector& values, const MessageLayout& layout);
/// Returns the values that pack() put into the message. In backward, gradients flow from tensors with `has_gradient` to
/// the message.
[[nodiscard]] TensorVector unpack(const at::Tensor& message, const MessageLayout& layout);

/// Return for example `[2, 3] of Float, [2] of Long without a gradient, nothing`; `nothing` is an undefined tensor.
[[nodiscard]] std::string describe(const MessageLayout& layout);
[[nodiscard]] std::string describe(const TensorVector& values);

/// How a run uses a layer.
struct ModuleUse {
  bool replicated = false;  // whether several workers train replicas of it
  bool recomputed = false;  // whether its forward runs again before the backward (activation checkpointing)
};

/// Throws ConfigError, which names layer and module, if the layer has a module that cannot be used like this: a module
/// with buffers, or one that draws from torch's random generator. Layers that are functions are not checked. `index` is
/// the layer's index in the model.
void require_repeatable(const Layer& layer, std::int64_t index, const ModuleUse& use);

/// Returns 64 random bits for a layer in the op that this thread runs: a function of `seed`, the step, the
/// micro-batch's first sample in the mini-batch of all groups, and the layer's index. A second forward gets the same
/// bits. Throws Error outside of the layers and the loss of a stage.
[[nodiscard]] std::uint64_t random_bits_in_op(std::uint64_t seed, std::int64_t layer);

/// Loss of a micro-batch as a sum, not a mean, so that sums and counts of micro-batches can be added up.
struct LossSum {
  at::Tensor sum;          // scalar tensor
  std::int64_t count = 0;  // number of terms in `sum`, such as target tokens
};

/// The user's loss function. The loss of a step is the total of all sums divided by the total of all counts.
struct Loss {
  /// Returns the loss of a micro-batch.
  std::function<LossSum(const at::Tensor& output, const at::Tensor& target)> sum;
  /// Returns LossSum::count from the target alone. It is needed before the forward, because the first backward of a
  /// step divides by the total of all counts.
  std::function<std::int64_t(const at::Tensor& target)> count = [](const at::Tensor& target) { return target.numel(); };
};

/// Layers first_layer to end_layer - 1 of the model, as a stage.
struct ModuleStageSpec {
  StageId stage;
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  const Loss* loss = nullptr;  // borrowed; last stage only
};

/// Restores the values of tensors at the end of the result's scope.
[[nodiscard]] c10::scope_exit<std::function<void()>> keep_values(const std::vector<at::Tensor>& tensors);

/// Consecutive layers of a user's model. Parameter names are the global layer index and the name in the module:
/// `3.weight`.
class ModuleStage final : public Stage {
 public:
  /// If no layer has a trained parameter, the stage gets a dummy parameter, because a ParameterGroup needs one. Throws
  /// ConfigError if a layer does not support `use`, a parameter belongs to another stage already, or trained parameters
  /// differ in type or device.
  ModuleStage(const ModuleStageSpec& spec, std::vector<Layer> layers, const ModuleUse& use);

  /// Takes and returns messages (pack()), or returns the loss on the last stage, times
  /// MicroBatch::token_loss_scale. Throws ConfigError if a layer fails, writes to the stage's input, or returns an
  /// output that does not fit output_layout(). Also throws it if the loss is not one number, or its count is not
  /// Loss::count. If a layer in Python throws, throws UserCodeError, which names the layer.
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) override;

  /// Runs the layers before training, to find output_layout(), and returns the output. Runs them without an autograd
  /// graph, and a second time with one if the output is not plain (is_plain()). Restores buffers.
  [[nodiscard]] at::Tensor first_output(const at::Tensor& input, const MicroBatch& batch);
  /// Returns the layout of messages to the next stage; empty before the first forward, and on the last stage.
  [[nodiscard]] const MessageLayout& output_layout() const { return sent_; }
  /// Sets output_layout(), if another rank has found it.
  void set_output_layout(MessageLayout layout) { sent_ = std::move(layout); }
  /// Sets the layout of messages from the previous stage. Without a call, a message is one tensor.
  void set_input_layout(MessageLayout layout) { received_ = std::move(layout); }

  /// Returns all parameters, trained or not, and buffers, by global name.
  [[nodiscard]] std::vector<Parameter> values() const;
  /// Returns the buffers of all layers.
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

/// Makes a stage: calls the factories of its layers, under a process-wide lock. Seeds torch's random generator from
/// `seed` and layer index before each call, so initial values are equal for every partition and rank. Throws
/// ConfigError if a factory throws.
[[nodiscard]] std::unique_ptr<ModuleStage> make_module_stage(const ModuleStageSpec& spec,
                                                             const std::vector<LayerFactory>& layers,
                                                             const ModuleUse& use, std::uint64_t seed);

}  // namespace chimera
