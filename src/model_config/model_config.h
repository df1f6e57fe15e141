#pragma once

// The configuration of a transformer: its family and sizes. A model is an embedding, `layers` equal blocks and a head.
// Other code derives everything from ModelConfig: names and shapes of parameters (parameters.h), FLOPs and bytes of
// layers (footprint.h), and the modules (src/model). config.h finds, reads and validates configurations.

#include "core/choices.h"

namespace chimera {

/// Kind of transformer. Gpt2: causal, layer norm before each sub-layer. Bert: bidirectional, layer norm after each
/// sub-layer, trained on masked tokens and sentence order. Llama: causal, with rotary positions, RMS norms, gated
/// feed-forward and grouped-query attention; also Mistral, Qwen2 and Qwen3.
enum class Family : std::uint8_t { Gpt2, Bert, Llama };
template <>
inline constexpr auto kNames<Family> = in_order<Family>("gpt2", "bert", "llama");

/// Returns whether tokens attend only to themselves and earlier tokens, and every next token is a target.
[[nodiscard]] constexpr bool is_causal(Family family) { return family != Family::Bert; }

/// Which projections of attention have biases: none; query, key and value (Qwen2); or also the output projection.
enum class AttentionBias : std::uint8_t { None, QueryKeyValue, All };
template <>
inline constexpr auto kNames<AttentionBias> = in_order<AttentionBias>("none", "qkv", "all");

/// Scaling of the frequencies of rotary positions, for longer sequences: none; one factor for all frequencies; or the
/// rule of Llama 3.1, which leaves high frequencies unchanged.
enum class RopeScalingType : std::uint8_t { None, Linear, Llama3 };
template <>
inline constexpr auto kNames<RopeScalingType> = in_order<RopeScalingType>("none", "linear", "llama3");

/// How the frequencies are scaled.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::None;
  double factor = 1;  ///< divisor of all frequencies (Linear), or of low frequencies (Llama3)
  // Llama3: a frequency is low if it makes fewer than low_frequency_factor full rotations within original_positions
  // tokens, and high if it makes more than high_frequency_factor.
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  std::int64_t original_positions = 8192;  ///< Llama3: longest sequence before scaling
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// Configuration of a model. Only Llama uses the fields below `norm_epsilon`.
struct ModelConfig {
  std::string name;  ///< preset name, or file name without extension
  Family family = Family::Gpt2;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;        ///< width of hidden states
  std::int64_t heads = 0;         ///< attention heads; must divide `hidden` unless `head_size` is set
  std::int64_t feed_forward = 0;  ///< width inside the feed-forward sub-layer
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;               ///< longest sequence
  bool tied = false;                        ///< the output matrix is the token embedding
  std::optional<double> norm_epsilon = {};  ///< added to variance or mean square; default: norm_epsilon_of()

  std::optional<std::int64_t> key_value_heads = {};  ///< heads of keys and values; divide `heads`; default: `heads`
  std::optional<std::int64_t> head_size = {};        ///< width of a head, even; default: hidden / heads
  std::optional<std::int64_t> sliding_window = {};   ///< tokens that attention can see; sequences must not be longer
  double rope_theta = 10'000;                        ///< base of the wavelengths of rotary positions
  RopeScaling rope_scaling = {};
  AttentionBias attention_bias = AttentionBias::None;
  bool feed_forward_bias = false;
  bool query_key_norm = false;  ///< RMS norm of each query and key head before rotation (Qwen3)
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// Return the field, or its default.
[[nodiscard]] inline std::int64_t key_value_heads_of(const ModelConfig& config) {
  return config.key_value_heads.value_or(config.heads);
}

[[nodiscard]] inline std::int64_t head_size_of(const ModelConfig& config) {
  return config.head_size.value_or(config.hidden / config.heads);
}

/// Returns norm_epsilon, or Hugging Face's default: 1e-5 for GPT-2, 1e-12 for BERT, 1e-6 for Llama.
[[nodiscard]] inline double norm_epsilon_of(const ModelConfig& config) {
  switch (config.family) {
    case Family::Gpt2: return config.norm_epsilon.value_or(1e-5);
    case Family::Bert: return config.norm_epsilon.value_or(1e-12);
    case Family::Llama: return config.norm_epsilon.value_or(1e-6);
  }
  return 0;
}

/// Number of token types of BERT: sentences A and B.
inline constexpr std::int64_t kTokenTypes = 2;

}  // namespace chimera
