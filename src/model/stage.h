#pragma once
// A stage: what one worker runs forward and backward. The runtime knows stages only through this interface.
// Letters in shapes: b sequences of a micro-batch, L tokens of a sequence, H hidden width.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/dropout.h"
#include "model/partition.h"

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

/// A tensor that is trained: a leaf that requires grad. Its .grad() is a view into the stage's flat gradients.
struct Parameter {
  std::string name;  ///< global, e.g. `h.5.attn.c_attn.weight`
  at::Tensor value;
};

/// Parameters and a forward function. Backward is autograd's; it adds into gradients().
class Stage {
 public:
  virtual ~Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// `input`: hidden states [b, L, H] from the stage before, not written to; undefined for the first stage.
  /// Returns hidden states [b, L, H] or, on the last stage, the loss [] of this micro-batch: sums, not means, times the
  /// scales of `batch`, so that those of all micro-batches of a step add up to its mean loss.
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) = 0;

  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  /// All gradients in one tensor, in the order of parameters(), each from a multiple of 64 bytes on; zeros between.
  [[nodiscard]] at::Tensor& gradients() { return gradients_; }
  void zero_gradients();

  /// All that backward adds gradients to: the values of parameters() and their narrow copies. A copy's gradient is that
  /// of its parameter, in the parameter's type.
  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }
  /// Makes the narrow copies equal to their parameters again, rounded. To be called whenever those have changed: once
  /// an optimizer step, not once a micro-batch.
  void update_copies();

 protected:
  /// Makes `parameters` (contiguous, of one type and device, at least one) leaves that require grad, with gradients of
  /// zero. Computes in `compute` where that is given, otherwise in the type of the parameters.
  explicit Stage(std::vector<Parameter> parameters, std::optional<at::ScalarType> compute = std::nullopt);

  /// The type of hidden states.
  [[nodiscard]] at::ScalarType compute_type() const { return compute_type_; }
  /// `value`, one of parameters(), for use beside hidden states: itself, or its copy in compute_type(), made by the
  /// first call.
  [[nodiscard]] at::Tensor for_compute(const at::Tensor& value);

 private:
  std::vector<Parameter> parameters_;
  at::Tensor gradients_;
  at::ScalarType compute_type_;
  std::vector<at::Tensor> leaves_;
  std::vector<at::Tensor> copied_;  // parameters with a narrow copy
  std::vector<at::Tensor> copies_;  // theirs
};

/// The layers `layers` of the model `config` with their initial values, which depend on seed and parameter name only:
/// any partition starts from the same weights. They lie on `device`. `dtype` is that of hidden states; where it is
/// narrower than float32, parameters and gradients are float32 and layers compute with narrow copies.
/// Throws ConfigError where a tied model is cut: embedding and head must then be on this one stage.
[[nodiscard]] std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers,
                                                at::ScalarType dtype, std::uint64_t seed, at::Device device = at::kCPU);

}  // namespace chimera
