#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/choices.h"

// Which transformer is trained: the sizes that fix every parameter. Presets by name, others from TOML files.

// A model's sizes as JSON, as every file and report of this program has them.

namespace chimera {

/// The architecture. Gpt2: causal, layer norm before each sub-layer. Bert: bidirectional, layer norm after it, trained
/// on masked tokens and on the order of two sentences. Llama: causal, with rotary positions, RMS norms, gated
/// feed-forward sub-layers and grouped-query attention; also Mistral, Qwen2 and Qwen3.
enum class Family : std::uint8_t { Gpt2, Bert, Llama };
template <>
inline constexpr auto kNames<Family> =
    std::to_array<Named<Family>>({{Family::Gpt2, "gpt2"}, {Family::Bert, "bert"}, {Family::Llama, "llama"}});

/// Whether tokens see only those before them and themselves; the model is then trained on every next token, and its
/// blocks see hidden states alone.
[[nodiscard]] constexpr bool is_causal(Family family) { return family != Family::Bert; }

/// Which of attention's projections have biases: none; query, key and value (Qwen2); those and the output projection.
enum class AttentionBias : std::uint8_t { None, QueryKeyValue, All };
template <>
inline constexpr auto kNames<AttentionBias> = std::to_array<Named<AttentionBias>>(
    {{AttentionBias::None, "none"}, {AttentionBias::QueryKeyValue, "qkv"}, {AttentionBias::All, "all"}});

/// How the frequencies of rotary positions are lowered, so that a model reads longer sequences than it was first
/// trained on: not at all; all by one factor; those of Llama 3.1, where high frequencies stay as they are.
enum class RopeScalingType : std::uint8_t { None, Linear, Llama3 };
template <>
inline constexpr auto kNames<RopeScalingType> = std::to_array<Named<RopeScalingType>>(
    {{RopeScalingType::None, "none"}, {RopeScalingType::Linear, "linear"}, {RopeScalingType::Llama3, "llama3"}});

/// The numbers of a rule that scales frequencies.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::None;
  double factor = 1;  ///< of Linear and Llama3: what (low) frequencies are divided by
  // Of Llama3: frequencies with fewer turns than low_frequency_factor in original_positions are low, those with more
  // than high_frequency_factor are high.
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  std::int64_t original_positions = 8192;  ///< of Llama3: the longest sequence before scaling
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// Sizes of a transformer. The fields below `norm_epsilon` are those of Llama; other families leave them as they are.
struct ModelConfig {
  std::string name;  ///< the preset, or the file's name without folder and extension
  Family family = Family::Gpt2;
  std::int64_t layers = 0;                  ///< transformer blocks
  std::int64_t hidden = 0;                  ///< width of the hidden states
  std::int64_t heads = 0;                   ///< attention heads; divide `hidden` unless `head_size` is given
  std::int64_t feed_forward = 0;            ///< width inside the feed-forward sub-layer
  std::int64_t vocabulary = 0;              ///< distinct tokens
  std::int64_t positions = 0;               ///< longest sequence
  bool tied = false;                        ///< the head's matrix is the token embedding
  std::optional<double> norm_epsilon = {};  ///< added to variances and mean squares; none: norm_epsilon_of()

  std::optional<std::int64_t> key_value_heads = {};  ///< heads of keys and values; divide `heads`; none: as many
  std::optional<std::int64_t> head_size = {};        ///< width of a head, even; none: hidden / heads
  std::optional<std::int64_t> sliding_window = {};   ///< tokens that attention looks back; limits the sequence
  double rope_theta = 10'000;                        ///< base of the wave lengths of rotary positions
  RopeScaling rope_scaling = {};
  AttentionBias attention_bias = AttentionBias::None;
  bool feed_forward_bias = false;
  bool query_key_norm = false;  ///< RMS norms of each query and key head before rotation (Qwen3)
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// Heads of keys and values: of GPT-2 and BERT those of attention.
[[nodiscard]] inline std::int64_t key_value_heads_of(const ModelConfig& config) {
  return config.key_value_heads.value_or(config.heads);
}

/// The width of one head.
[[nodiscard]] inline std::int64_t head_size_of(const ModelConfig& config) {
  return config.head_size.value_or(config.hidden / config.heads);
}

/// The model's norm_epsilon, or where it has none that of Hugging Face: 1e-5 of GPT-2, 1e-12 of BERT, 1e-6 of Llama.
[[nodiscard]] double norm_epsilon_of(const ModelConfig& config);

/// Single fields that replace those of a configuration; `hidden` also makes feed_forward 4 * hidden, of Llama, which
/// has three matrices there, 3 * hidden.
struct ModelOverrides {
  std::optional<std::int64_t> layers = {};
  std::optional<std::int64_t> hidden = {};
  std::optional<std::int64_t> heads = {};
  std::optional<std::int64_t> key_value_heads = {};  ///< Llama only
  std::optional<std::int64_t> vocabulary = {};
  std::optional<bool> tied = {};
};

/// Token types (segments) of BERT: sentence A and sentence B.
inline constexpr std::int64_t kTokenTypes = 2;

/// The models known by name, smallest first within a family.
[[nodiscard]] std::vector<std::string> preset_names();

/// The preset of that name or, where the argument ends in ".toml", the model in that file (see read_model_file).
/// Throws ConfigError for an unknown name, with the nearest known one.
[[nodiscard]] ModelConfig find_model(const std::string& name_or_file);

/// Reads a TOML file with the fields `family` ("gpt2", "bert" or "llama"), `layers`, `hidden`, `heads`, `feed_forward`,
/// `vocabulary`, `positions` (integers) and `tied` (true or false); perhaps with `norm_epsilon` and, of Llama, any
/// other field of ModelConfig, `rope_scaling` as a table.
/// Throws ConfigError with the file, and the line where there is one, for an unreadable file, bad TOML, an unknown or
/// missing field, a wrong type, or sizes that require_valid() refuses.
[[nodiscard]] ModelConfig read_model_file(const std::string& path);
/// The same of the text of a file of that path.
[[nodiscard]] ModelConfig model_from_toml(const std::string& text, const std::string& path);

/// `config` with the given fields replaced. Throws ConfigError where the result is not valid.
[[nodiscard]] ModelConfig with_overrides(ModelConfig config, const ModelOverrides& overrides);

/// Throws ConfigError unless every size is positive and at most 10^9 (layers: 10^6), there are at most 10^15 parameters
/// and heads divide hidden; for Llama also unless key and value heads divide heads, heads are of even width, and the
/// numbers of rotary positions are in their ranges; for other families if Llama's fields are used.
void require_valid(const ModelConfig& config);

/// Throws ConfigError where a sequence of so many tokens is longer than the model's sliding window: each token would
/// then see fewer than all before it, which is not supported.
void require_no_sliding(const ModelConfig& config, std::int64_t sequence);

/// The fields of a model file (model_config/config.h) but `layers`: `family`, `hidden`, `heads`, `feed_forward`,
/// `vocabulary`, `positions`, `tied`; of Llama all others too but a missing `sliding_window`. They fix what one layer
/// of each kind is.
[[nodiscard]] nlohmann::ordered_json layer_sizes_json(const ModelConfig& model);

}  // namespace chimera
