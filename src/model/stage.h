#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/dropout.h"
#include "model/parameter_group.h"
#include "model/tied_weight.h"
#include "model_config/config.h"
#include "model_config/partition.h"

// A stage: what one worker runs forward and backward. The runtime knows stages only through this interface.
// Letters in shapes: b sequences of a micro-batch, L tokens of a sequence, H hidden width.

namespace chimera {

class KeyValueCache;

/// The tensors of one micro-batch that do not travel between stages: every worker reads them from its loader.
/// A stage never writes to them.
struct MicroBatch {
  at::Tensor tokens = {};          ///< [b, L] int64
  at::Tensor targets = {};         ///< [b, L] int64; kIgnored (-100, model/layers.h) where no loss is taken
  at::Tensor target_places = {};   ///< [n] int64, of target_places(); BERT only; undefined = the stage finds them, for
                                   ///< which it waits for a device
  at::Tensor token_types = {};     ///< [b, L] int64, 0 or 1; BERT only
  at::Tensor attention_mask = {};  ///< [b, L] bool, true = attend; BERT only; undefined = everywhere
  at::Tensor documents = {};       ///< [b, L] int64, the number of each token's document; GPT-2, Llama; undefined = one
  at::Tensor next_sentence = {};   ///< [b] int64; 0 = sentence B follows A (as in Hugging Face); BERT only
  double token_loss_scale = 1;     ///< 1 / target tokens of the whole step
  double sentence_loss_scale = 1;  ///< 1 / sequences of the whole step; BERT only
  Dropout dropout = {};            ///< every stage needs it; its layer is for the stage to set
  /// GPT-2, Llama, in forwards without a graph: the tokens go on behind those that this stage has seen, which it
  /// remembers here, and are remembered too. Null: they begin a sequence. Not with `documents`.
  KeyValueCache* cache = nullptr;
};

/// The tensors that the micro-batch has, in the order of its fields.
[[nodiscard]] std::vector<at::Tensor*> tensors_of(MicroBatch& batch);

/// Parameters and a forward function. Backward is autograd's; it accumulates into gradients(), and where the model is
/// tied into those of the tied matrix.
class Stage : public ParameterGroup {
 public:
  /// `input`: hidden states [b, L, H] from the stage before, not written to; undefined for the first stage.
  /// Returns hidden states [b, L, H] or, on the last stage, the loss [] of this micro-batch: sums, not means, times the
  /// scales of `batch`, so that those of all micro-batches of a step add up to its mean loss.
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) = 0;

  /// Whatever backward adds to: the parameters, then the leaves of the tied matrix that this stage uses, then the
  /// narrow copies of these (mixed precision). A copy's gradient is its master weight's, in that type.
  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }
  /// Makes the narrow copies equal to their originals again, rounded. To be called whenever those have changed: once an
  /// optimizer step, not once a micro-batch.
  void update_copies();

 protected:
  /// `parameters` as for ParameterGroup. Computes in `compute` where that is given, otherwise in their type.
  explicit Stage(std::vector<Parameter> parameters, const TiedLeaves& tied = {},
                 std::optional<at::ScalarType> compute = std::nullopt);

  /// The type of hidden states.
  [[nodiscard]] at::ScalarType compute_type() const { return compute_type_; }
  /// `leaf`, one of leaves(), for use beside hidden states: itself, or its copy in compute_type(), made by the first
  /// call.
  [[nodiscard]] at::Tensor for_compute(const at::Tensor& leaf);

 private:
  at::ScalarType compute_type_;
  std::vector<at::Tensor> leaves_;
  std::vector<at::Tensor> copied_;  // leaves with a narrow copy
  std::vector<at::Tensor> copies_;  // theirs
};

/// The layers `layers` of the model `config` with their initial values, which depend on seed and parameter name only:
/// any partition starts from the same weights. `tied`: of a tied model, what the worker has of its matrix, which is no
/// parameter of the stage. All lies on `device`. `dtype` is that of hidden states; parameters and gradients are of
/// weight_type(dtype), and layers compute with narrow copies where that is another one.
/// Throws ConfigError where the stage uses the matrix and that is missing.
[[nodiscard]] std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers,
                                                at::ScalarType dtype, std::uint64_t seed, const TiedLeaves& tied = {},
                                                at::Device device = at::kCPU);

}  // namespace chimera
