#pragma once

// Flags about the model, which several commands share: those that change single fields of a preset model (--layers,
// --hidden, ...), divide it into pipeline stages (--partition), or set the element type and the file size of exported
// tensors. Each function adds flags to a command, which write into a variable of the caller.

#include <CLI/CLI.hpp>

#include <string>

#include "model_config/config.h"
#include "model_config/partition.h"

namespace chimera::apps {

/// Adds a flag for each field of `fields`. A field stays empty if its flag is not given.
void add_model_fields(CLI::App& app, ModelOverrides& fields);

/// Adds a flag for the element type of exported tensors, such as `bfloat16`. `word` receives one of
/// element_type_names() (hugging_face/config_json.h).
CLI::Option* add_element_type(CLI::App& app, const std::string& flag, std::string& word,
                              const std::string& description);
/// Adds a flag for the maximum bytes of tensors per exported file.
CLI::Option* add_shard_size(CLI::App& app, const std::string& flag, std::uint64_t& bytes);

/// Adds --partition, which sets how many layers each stage has: evenly, balanced by time, or a list of numbers.
void add_partition(CLI::App& app, PartitionChoice& partition);

/// Returns the names of the preset models, separated by commas.
[[nodiscard]] std::string preset_list();

}  // namespace chimera::apps
