#pragma once
// Which transformer is trained: the sizes that fix every parameter. Presets by name, others from TOML files.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/names.h"

namespace chimera {

/// The architecture. Gpt2: causal, layer norm before each sub-layer. Bert: bidirectional, layer norm after it, trained
/// on masked tokens and on the order of two sentences.
enum class Family : std::uint8_t { Gpt2, Bert };
template <>
inline constexpr auto kNames<Family> = std::to_array<Named<Family>>({{Family::Gpt2, "gpt2"}, {Family::Bert, "bert"}});

/// Sizes of a transformer. The width of one attention head is hidden / heads.
struct ModelConfig {
  std::string name;  ///< the preset, or the file's name without folder and extension
  Family family = Family::Gpt2;
  std::int64_t layers = 0;        ///< transformer blocks
  std::int64_t hidden = 0;        ///< width of the hidden states
  std::int64_t heads = 0;         ///< attention heads; divide `hidden`
  std::int64_t feed_forward = 0;  ///< width inside the feed-forward sub-layer
  std::int64_t vocabulary = 0;    ///< distinct tokens
  std::int64_t positions = 0;     ///< longest sequence
  bool tied = false;              ///< the head's matrix is the token embedding
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// Single fields that replace those of a configuration; `hidden` also makes feed_forward 4 * hidden.
struct ModelOverrides {
  std::optional<std::int64_t> layers = {};
  std::optional<std::int64_t> hidden = {};
  std::optional<std::int64_t> heads = {};
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

/// Reads a TOML file with exactly the fields `family` ("gpt2" or "bert"), `layers`, `hidden`, `heads`,
/// `feed_forward`, `vocabulary`, `positions` (integers) and `tied` (true or false).
/// Throws ConfigError with the file, and the line where there is one, for an unreadable file, bad TOML, an unknown or
/// missing field, a wrong type, or sizes that validate() refuses.
[[nodiscard]] ModelConfig read_model_file(const std::string& path);

/// `config` with the given fields replaced. Throws ConfigError where the result is not valid.
[[nodiscard]] ModelConfig with_overrides(ModelConfig config, const ModelOverrides& overrides);

/// Throws ConfigError unless every size is positive and at most 10^9 (layers: 10^6), there are at most 10^15 parameters
/// and heads divide hidden.
void validate(const ModelConfig& config);

}  // namespace chimera
