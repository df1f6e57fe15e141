#pragma once

// Settings of an update: the kind of optimizer with its constants, which parameters have weight decay, and the learning
// rate of each step. Trainer (train/loop/trainer.h) and RankFit (fit.h) use them. StepDriver computes the rate of each
// step and passes it to the Optimizer (optimizer.h).

#include "core/choices.h"

namespace chimera {

/// How the learning rate changes after it has reached its peak. Formulas are in docs/metrics.md, Learning rates.
enum class LearningRateShape : std::uint8_t {
  Cosine,    ///< half a cosine from peak to minimum (Loshchilov and Hutter, ICLR'17)
  Linear,    ///< straight line from peak to minimum
  Wsd,       ///< warm-up, stable, decay: peak, then down to the minimum (Hu et al., MiniCPM, 2024)
  Constant,  ///< peak
};
template <>
inline constexpr auto kNames<LearningRateShape> = in_order<LearningRateShape>("cosine", "linear", "wsd", "constant");

/// Curve of Wsd's cooldown. The rate is minimum + (peak - minimum) * f(q), where q is the completed share of the
/// cooldown: 0 in the last step with the peak, 1 in the last step of the run. Each enumerator has its own f(q).
enum class CooldownShape : std::uint8_t {
  Linear,  ///< 1 - q
  Cosine,  ///< (1 + cos(pi q)) / 2
  Sqrt,    ///< 1 - sqrt(q) (Hägele et al., NeurIPS'24)
};
template <>
inline constexpr auto kNames<CooldownShape> = in_order<CooldownShape>("linear", "cosine", "sqrt");

/// The learning rate of each step.
struct LearningRate {
  double peak = 1e-3;
  std::int64_t warmup = 0;             // steps of linear warm-up, the first at peak / warmup
  std::optional<double> minimum = {};  // Default: a tenth of the peak
  LearningRateShape shape = LearningRateShape::Cosine;
  std::optional<std::int64_t> cooldown = {};  // last steps, wsd only; default: a tenth of the run, at least 1
  CooldownShape cooldown_shape = CooldownShape::Linear;

  /// Returns the rate of `step` (from 0) in a run of `steps` steps. The last step of the warm-up has the peak; without
  /// a warm-up, step 0 has it. The last step of the run has the minimum. It has the peak instead if the shape is
  /// Constant, if the cooldown is 0, or if it is also the first step with the peak.
  [[nodiscard]] double at(std::int64_t step, std::int64_t steps) const;
  /// Returns the number of last steps in which the rate falls, in a run of `steps` steps; 0 unless the shape is Wsd.
  [[nodiscard]] std::int64_t cooldown_steps(std::int64_t steps) const;
};

/// Returns a message about the first invalid value, such as "learning-rate must be above 0"; empty if all are valid.
[[nodiscard]] std::string find_invalid_option(const LearningRate& rate, std::int64_t steps);

/// Parameters with weight decay (--decay)
enum class DecayedWeights : std::uint8_t {
  Matrices,      ///< parameters with two or more dimensions: neither biases nor norms
  NoEmbeddings,  ///< matrices except embeddings; a tied matrix is an embedding
  All,
};
template <>
inline constexpr auto kNames<DecayedWeights> = in_order<DecayedWeights>("matrices", "no-embeddings", "all");

/// Returns whether the name contains `embed` (Hugging Face's BERT and Llama) or is GPT-2's `wte` or `wpe`, and the
/// parameter is a matrix.
[[nodiscard]] bool is_embedding(std::string_view name, std::int64_t dimensions);

/// Returns whether the parameter `name` with this number of dimensions has weight decay.
[[nodiscard]] bool has_decay(DecayedWeights decayed, std::string_view name, std::int64_t dimensions);

/// Factor on the learning rate of a matrix out x in under Muon (--muon-adjust)
enum class MuonAdjust : std::uint8_t {
  MatchRmsAdamW,  ///< 0.2 sqrt(max(out, in)): updates as large as AdamW's (Liu et al., 2025, arXiv 2502.16982)
  Original,       ///< sqrt(max(1, out / in)) (Jordan, 2024)
};
template <>
inline constexpr auto kNames<MuonAdjust> = in_order<MuonAdjust>("match-rms-adamw", "original");

/// Settings of Muon, which updates matrices. The other parameters are updated by AdamW with the constants in
/// OptimizerOptions.
struct MuonOptions {
  double momentum = 0.95;  // in [0, 1)
  MuonAdjust adjust = MuonAdjust::MatchRmsAdamW;
  std::optional<DataType> iterations = {};  // type in which matrices are orthogonalized; empty: the type of the layers
  std::vector<std::string> exclude = {};    // AdamW also updates matrices whose names contain one of these
};

/// The kind of optimizer and its constants.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::AdamW;
  double weight_decay = 0;
  DecayedWeights decayed = DecayedWeights::Matrices;
  double beta1 = 0.9;     // AdamW, LAMB: decay of the running mean of gradients, in [0, 1)
  double beta2 = 0.999;   // decay rate of the mean squared gradient
  double epsilon = 1e-8;  // added to the root of the squares' mean, above 0
  MuonOptions muon = {};
};

/// Returns a message about the first invalid value; empty if all are valid.
[[nodiscard]] std::string find_invalid_option(const OptimizerOptions& options);

}  // namespace chimera
