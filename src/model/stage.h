#pragma once

// The interface of a stage: consecutive layers of a model as one module, which a worker runs forward and backward for
// each micro-batch. The executor (runtime/executor.h) uses only this interface. It passes hidden states from stage to
// stage. Tokens, targets and settings are not sent: every worker's own data loader makes the same MicroBatch.
// transformer_stage.h has the stages of GPT-2, BERT and Llama, and make_stage.h makes them. module_stage.h has the
// stages of users' models.

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/dropout.h"
#include "model/parameter_group.h"

// Letters in shapes: b sequences of a micro-batch, L tokens of a sequence, H hidden width.

namespace chimera {

class KeyValueCache;

/// Inputs and settings of a micro-batch, which every worker gets from its data loader. Stages do not write to its
/// tensors.
struct MicroBatch {
  at::Tensor tokens = {};   ///< [b, L] int64
  at::Tensor targets = {};  ///< [b, L] int64; a target of kIgnored (-100, model/layers.h) has no loss
  /// [n] int64, the positions of the n targets that are not kIgnored, in the flattened targets (target_indices() in
  /// model/layers.h); BERT only. If undefined, the stage computes it, and a GPU's host must wait for it.
  at::Tensor target_indices = {};
  at::Tensor token_types = {};     ///< [b, L] int64, 0 or 1; BERT only
  at::Tensor attention_mask = {};  ///< [b, L] bool, true = attend; BERT only; undefined = all true
  /// [b, L] int64, document number of each token; GPT-2 and Llama only; undefined = one document. In a slice, this
  /// tensor begins at the first token of the whole sequence and ends at the slice's last token.
  at::Tensor documents = {};
  /// Further arguments of the first layer of a user's model.
  std::vector<at::Tensor> more_inputs = {};
  at::Tensor next_sentence = {};  ///< [b] int64; 0 = sentence B follows A (as in Hugging Face); BERT only
  /// 1 / number of targets that are not kIgnored, over the whole step or, if a stage is updated several times in a step
  /// (asynchronous schedules), over one update
  double token_loss_scale = 1;
  double sentence_loss_scale = 1;  ///< 1 / number of sequences, over the same; BERT only
  Dropout dropout = {};            ///< each layer uses a copy with its own number (Dropout::layer)
  /// Attention's keys and values of earlier tokens on this stage (key_value_cache.h): of earlier slices of the
  /// micro-batch or, in generation, of the text so far. Forward appends those of its own tokens. Null: `tokens` are
  /// whole sequences. GPT-2 and Llama only.
  std::shared_ptr<KeyValueCache> key_value_cache = nullptr;
  std::int64_t first_token = 0;  ///< position of `tokens` in their sequence
};

/// Returns pointers to the defined tensors, in the order of the fields.
[[nodiscard]] std::vector<at::Tensor*> tensors_of(MicroBatch& batch);

/// Returns the slice of tokens `first` .. `end` - 1 of each sequence of a whole micro-batch. All slices of a
/// micro-batch get the same `key_value_cache`.
[[nodiscard]] MicroBatch slice_of(MicroBatch batch, std::int64_t first, std::int64_t end,
                                  std::shared_ptr<KeyValueCache> key_value_cache);

/// Parameters and a forward function. The backward is autograd's: it accumulates into gradients() (parameter_group.h)
/// and, in a tied model, into the gradients of the matrix that is both token embedding and output matrix. A forward and
/// a backward of other micro-batches may run at the same time on two threads.
class Stage : public ParameterGroup {
 public:
  /// `input` is the hidden states [b, L, H] of the previous stage; undefined on the first stage. Returns hidden states
  /// [b, L, H] or, on the last stage, the loss of this micro-batch as a scalar tensor. The loss is scaled by `batch`
  /// (token_loss_scale), so that the losses of all micro-batches and slices of a step, or of an update, add up to the
  /// mean loss.
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) = 0;

  /// Returns the autograd leaves to whose gradients backward adds: parameters, leaves of the tied matrix, and, in mixed
  /// precision, low-precision copies of these. The gradient of a copy is the gradient tensor of its master weight.
  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }
  /// Updates the low-precision copies from their master weights. Call it after each optimizer step.
  void update_copies();

 protected:
  /// `parameters` must be contiguous, of one type and device (ParameterGroup). `tied` are the leaves of the tied matrix
  /// (parameter_group.h) that the stage uses. `compute` is the type of hidden states; nothing: the parameters' type.
  explicit Stage(std::vector<Parameter> parameters, const TiedLeaves& tied = {},
                 std::optional<at::ScalarType> compute = std::nullopt);

  [[nodiscard]] at::ScalarType compute_type() const { return compute_type_; }
  /// Returns `leaf`, one of leaves(), or its copy in compute_type(), which the first call makes.
  [[nodiscard]] at::Tensor for_compute(const at::Tensor& leaf);
  /// Returns one matrix in compute_type() whose rows are the rows of several matrices in leaves(), so that a GPU
  /// computes one product instead of several. Its gradient is a view of the gradients of these matrices. Returns an
  /// undefined tensor on the CPU (where a larger product might round differently), if there are no low-precision
  /// copies, or if the gradients of the matrices are not adjacent in memory.
  [[nodiscard]] at::Tensor packed_for_compute(const std::vector<at::Tensor>& leaves);

 private:
  at::ScalarType compute_type_;
  std::vector<at::Tensor> leaves_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // leaf and its low-precision copy
};

}  // namespace chimera
