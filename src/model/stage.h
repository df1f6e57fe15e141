#pragma once

// A stage: consecutive layers of a model as one module, which a worker runs forward and backward for each micro-batch.
// The executor (runtime/executor.h) uses only this interface. It passes hidden states from stage to stage; tokens,
// targets and settings come with the MicroBatch, from each worker's own data loader. transformer_stage.h has the stages
// of GPT-2, BERT and Llama, module_stage.h those of users; make_stage.h makes them.

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/dropout.h"
#include "model/parameter_group.h"

// Letters in shapes are as in model/layers.h.

namespace chimera {

class CarriedKeyValues;

/// Tensors of a micro-batch that every worker reads from its data loader; stages neither send nor write them.
struct MicroBatch {
  at::Tensor tokens = {};   ///< [b, L] int64
  at::Tensor targets = {};  ///< [b, L] int64; kIgnored (-100, model/layers.h): no loss
  /// [n] int64, target_indices() of the flattened targets; BERT only; undefined = the stage computes it and waits for
  /// its device
  at::Tensor target_indices = {};
  at::Tensor token_types = {};     ///< [b, L] int64, 0 or 1; BERT only
  at::Tensor attention_mask = {};  ///< [b, L] bool, true = attend; BERT only; undefined = all true
  /// [b, L] int64, document number of each token; GPT-2, Llama; undefined = one document. A slice has them of all
  /// tokens up to its last.
  at::Tensor documents = {};
  /// Further arguments of a user's first layer.
  std::vector<at::Tensor> more_inputs = {};
  at::Tensor next_sentence = {};     ///< [b] int64; 0 = sentence B follows A (as in Hugging Face); BERT only
  double token_loss_scale = 1;       ///< 1 / target tokens of the whole step
  double sentence_loss_scale = 1;    ///< 1 / sequences of the whole step; BERT only
  Dropout dropout = {};              ///< used by every stage, which sets its `layer`
  bool recompute_attention = false;  ///< backward computes attention again (checkpointed(), model/layers.h)
  /// Keys and values of earlier slices of this micro-batch on this stage, or of earlier tokens of a text that is being
  /// generated; forward appends its own. Null: the tokens begin a sequence. GPT-2 and Llama only.
  std::shared_ptr<CarriedKeyValues> carried = nullptr;
  std::int64_t first_token = 0;  ///< position of `tokens` in their sequence
};

/// Returns the defined tensors in the order of the fields.
[[nodiscard]] std::vector<at::Tensor*> tensors_of(MicroBatch& batch);

/// Returns the slice of tokens `first` .. `end` - 1 of a whole micro-batch. All slices share `carried`.
[[nodiscard]] MicroBatch slice_of(MicroBatch batch, std::int64_t first, std::int64_t end,
                                  std::shared_ptr<CarriedKeyValues> carried);

/// Parameters and a forward function. Autograd's backward accumulates into gradients() and, in a tied model, into the
/// gradients of the tied matrix.
class Stage : public ParameterGroup {
 public:
  /// Takes hidden states [b, L, H] from the previous stage (undefined for the first stage). Returns hidden states [b,
  /// L, H] or, on the last stage, the loss [] of this micro-batch. The losses of a step's micro-batches and slices,
  /// scaled by `batch`, add up to the step's mean loss.
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) = 0;

  /// Leaves that backward adds to: parameters, leaves of the tied matrix, and low-precision copies of these (mixed
  /// precision). A copy shares its master weight's gradient and gradient type.
  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }
  /// Updates the low-precision copies from their master weights. Call it after each optimizer step.
  void update_copies();

 protected:
  /// `parameters` are as in ParameterGroup. `tied` are the leaves that the stage uses. `compute` is the type of hidden
  /// states; default: the parameters' type.
  explicit Stage(std::vector<Parameter> parameters, const TiedLeaves& tied = {},
                 std::optional<at::ScalarType> compute = std::nullopt);

  [[nodiscard]] at::ScalarType compute_type() const { return compute_type_; }
  /// Returns `leaf`, one of leaves(), or its copy in compute_type(), which the first call makes.
  [[nodiscard]] at::Tensor for_compute(const at::Tensor& leaf);
  /// Returns copies of matrices, some of leaves(), in compute_type() as rows of one matrix, whose gradient is theirs:
  /// one product on a GPU instead of several. Undefined on the CPU, where a larger product might round differently,
  /// without low-precision copies, or if the leaves' gradients are not adjacent in memory.
  [[nodiscard]] at::Tensor packed_for_compute(const std::vector<at::Tensor>& leaves);

 private:
  at::ScalarType compute_type_;
  std::vector<at::Tensor> leaves_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // leaf and its low-precision copy
};

}  // namespace chimera
