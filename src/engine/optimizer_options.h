#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/choices.h"

// The learning rate over a run.

// Which parameters decay towards zero.

// How weights are updated, and at which rate (engine/learning_rate.h).

namespace chimera {

/// What follows the warm-up. q is the part of the remaining steps that is over, from 0.
enum class LearningRateShape : std::uint8_t {
  Cosine,  ///< half a cosine from the peak to the minimum (Loshchilov and Hutter, ICLR'17)
  Linear,  ///< a straight line
  Wsd,     ///< warm-up, stable, decay: the peak, and over the last steps down to the minimum (Hu et al., MiniCPM, 2024)
  Constant,  ///< the peak
};
template <>
inline constexpr auto kNames<LearningRateShape> =
    std::to_array<Named<LearningRateShape>>({{LearningRateShape::Cosine, "cosine"},
                                             {LearningRateShape::Linear, "linear"},
                                             {LearningRateShape::Wsd, "wsd"},
                                             {LearningRateShape::Constant, "constant"}});

/// How much of the way from the minimum to the peak is left after the part q of the cooldown that ends Wsd.
enum class CooldownShape : std::uint8_t {
  Linear,  ///< 1 - q
  Cosine,  ///< (1 + cos(pi q)) / 2
  Sqrt,    ///< 1 - sqrt(q) (Hägele et al., NeurIPS'24)
};
template <>
inline constexpr auto kNames<CooldownShape> = std::to_array<Named<CooldownShape>>({{CooldownShape::Linear, "linear"},
                                                                                   {CooldownShape::Cosine, "cosine"},
                                                                                   {CooldownShape::Sqrt, "sqrt"}});

struct LearningRate {
  double peak = 1e-3;
  std::int64_t warmup = 0;             // steps of linear warm-up, the first of them at peak / warmup
  std::optional<double> minimum = {};  // a tenth of the peak where it is not said
  LearningRateShape shape = LearningRateShape::Cosine;
  std::optional<std::int64_t> cooldown = {};  // steps of it, of Wsd; a tenth of the run where it is not said
  CooldownShape cooldown_shape = CooldownShape::Linear;

  /// That of a step (from 0) of a run of `steps`.
  [[nodiscard]] double at(std::int64_t step, std::int64_t steps) const;
  /// Steps of the cooldown of a run of `steps`; 0 unless the shape is Wsd.
  [[nodiscard]] std::int64_t cooldown_steps(std::int64_t steps) const;
};

/// What makes it impossible for a run of `steps`, such as "learning-rate must be above 0"; empty: nothing does.
[[nodiscard]] std::string fault_of(const LearningRate& rate, std::int64_t steps);

enum class DecayedWeights : std::uint8_t {
  Matrices,      ///< tensors of two or more dimensions: neither biases nor norms
  NoEmbeddings,  ///< those but for embeddings; a tied matrix is one
  All,
};
template <>
inline constexpr auto kNames<DecayedWeights> =
    std::to_array<Named<DecayedWeights>>({{DecayedWeights::Matrices, "matrices"},
                                          {DecayedWeights::NoEmbeddings, "no-embeddings"},
                                          {DecayedWeights::All, "all"}});

/// Whether this is a matrix that a model looks up rows of, by its name: one that contains `embed`, as Hugging Face's of
/// BERT and Llama do, or GPT-2's `wte` and `wpe`.
[[nodiscard]] bool is_embedding(std::string_view name, std::int64_t dimensions);

/// Whether weight decay acts on that parameter.
[[nodiscard]] bool decays(DecayedWeights decayed, std::string_view name, std::int64_t dimensions);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::AdamW;
  double weight_decay = 0;
  DecayedWeights decayed = DecayedWeights::Matrices;  // what weight_decay acts on
  double beta1 = 0.9;     // AdamW, LAMB: how much of a gradient's running mean is kept from step to step, in [0, 1)
  double beta2 = 0.999;   // likewise of its square's
  double epsilon = 1e-8;  // added to the root of the latter, above 0
};

/// What makes these options impossible, such as "beta1 must be at least 0 and below 1, not 1"; empty: nothing does.
[[nodiscard]] std::string fault_of(const OptimizerOptions& options);

}  // namespace chimera
