#pragma once
// A stage: what one worker runs forward and backward. The runtime knows stages only through this interface.
// Letters in shapes: b sequences of a micro-batch, L tokens of a sequence, H hidden width.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "model/config.h"
#include "model/dropout.h"
#include "model/parameter_group.h"
#include "model/partition.h"
#include "model/tied_weight.h"

namespace chimera {

/// The tensors of one micro-batch that do not travel between stages: every worker reads them from its loader.
/// A stage never writes to them.
struct MicroBatch {
  at::Tensor tokens = {};          ///< [b, L] int64
  at::Tensor targets = {};         ///< [b, L] int64; kIgnored (-100, model/layers.h) where no loss is taken
  at::Tensor token_types = {};     ///< [b, L] int64, 0 or 1; BERT only
  at::Tensor attention_mask = {};  ///< [b, L] bool, true = attend; BERT only; undefined = everywhere
  at::Tensor next_sentence = {};   ///< [b] int64; 0 = sentence B follows A (as in Hugging Face); BERT only
  double token_loss_scale = 1;     ///< 1 / target tokens of the whole step
  double sentence_loss_scale = 1;  ///< 1 / sequences of the whole step; BERT only
  Dropout dropout = {};            ///< every stage needs it; its layer is for the stage to set
};

/// Parameters and a forward function. Backward is autograd's; it adds into gradients(), and where the model is tied
/// into those of the tied matrix.
class Stage : public ParameterGroup {
 public:
  /// `input`: hidden states [b, L, H] from the stage before, not written to; undefined for the first stage.
  /// Returns hidden states [b, L, H] or, on the last stage, the loss [] of this micro-batch: sums, not means, times the
  /// scales of `batch`, so that those of all micro-batches of a step add up to its mean loss.
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) = 0;

  /// Whatever backward adds to: the parameters, then the leaves of the tied matrix that this stage uses.
  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }

 protected:
  /// `parameters` as for ParameterGroup.
  explicit Stage(std::vector<Parameter> parameters, const TiedLeaves& tied = {});

 private:
  std::vector<at::Tensor> leaves_;
};

/// The layers `layers` of the model `config` with their initial values, which depend on seed and parameter name only:
/// any partition starts from the same weights. `tied`: of a tied model, what the worker has of its matrix, which is no
/// parameter of the stage. Throws ConfigError where the stage uses the matrix and that is missing.
[[nodiscard]] std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers,
                                                at::ScalarType dtype, std::uint64_t seed, const TiedLeaves& tied = {});

}  // namespace chimera
