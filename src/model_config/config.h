#pragma once

// Finds and reads configurations of models: presets by name, TOML files, and replacements of single fields from the
// command line. Every configuration that these functions return is valid (require_valid()). Error messages name the
// file and field of a fault, and the line of a fault in the syntax.

#include <nlohmann/json.hpp>
#include <vector>

#include "model_config/model_config.h"

namespace chimera {

class JsonFields;

/// Replacements for fields of a configuration; empty: unchanged. `hidden` also sets feed_forward to 4 * hidden (Llama:
/// 3 * hidden).
struct ModelOverrides {
  std::optional<std::int64_t> layers = {};
  std::optional<std::int64_t> hidden = {};
  std::optional<std::int64_t> heads = {};
  std::optional<std::int64_t> key_value_heads = {};  ///< Llama only
  std::optional<std::int64_t> vocabulary = {};
  std::optional<bool> tied = {};
};

/// Returns the preset names, smallest model first within a family.
[[nodiscard]] std::vector<std::string> preset_names();

/// Returns advice how to download a model, for the error message if a folder does not exist. Returns an empty string if
/// `name` does not look like a name on the Hugging Face hub, such as `meta-llama/Llama-3.1-8B` or, if `may_lack_owner`,
/// `gpt2`.
[[nodiscard]] std::string hub_download(const std::string& name, bool may_lack_owner = false);

/// Returns the preset of that name, or the model in a file that ends in ".toml". Throws ConfigError, with the nearest
/// known name or hub_download(), for an unknown name.
[[nodiscard]] ModelConfig find_model(const std::string& name_or_file);

/// Reads a TOML file with the fields of ModelConfig, except `name`. The fields before `norm_epsilon` are required, and
/// the others optional; the fields after `norm_epsilon` are for Llama only. `rope_scaling` is a table. Throws
/// ConfigError with file and field for an unreadable file, bad TOML, an unknown or missing field, a wrong type, or
/// sizes that require_valid() rejects.
[[nodiscard]] ModelConfig read_model_file(const std::string& path);
/// Parses the text of a model file. `path` appears in messages; the model gets its file name without extension as name.
/// Throws as read_model_file() does.
[[nodiscard]] ModelConfig model_from_toml(const std::string& text, const std::string& path);

/// Returns `config` with the given fields replaced. Throws ConfigError if the result is invalid.
[[nodiscard]] ModelConfig with_overrides(ModelConfig config, const ModelOverrides& overrides);

/// Throws ConfigError unless sizes are positive and at most 10^9 (layers: 10^6), parameters are at most 10^15, and
/// heads divide hidden (unless head_size is set). Llama's key and value heads must divide heads, head width must be
/// even, and rotary settings in range. Other families must not set Llama's fields.
void require_valid(const ModelConfig& config);

/// Throws ConfigError if the model has a sliding window, and `sequence` (tokens) is longer.
void require_within_window(const ModelConfig& config, std::int64_t sequence);

/// Visits the fields of a model file, except `layers`, and Llama's fields for other families. Does not check the
/// values.
void visit_layer_sizes(JsonFields& json, ModelConfig& model);
/// Returns the fields of a model file as JSON, except `layers`, unset fields, and Llama's fields for other families.
/// Two models with the same result have equal layers, and may differ only in the number of layers.
[[nodiscard]] nlohmann::ordered_json layer_sizes_json(ModelConfig model);

}  // namespace chimera
