#pragma once

// The flags that change single fields of a preset model (--layers, --hidden, ...), divide it into stages (--partition),
// and set the element type and the file size of exported tensors. Each function adds flags to a command and binds them
// to a variable of the caller.

#include <CLI/CLI.hpp>

#include <string>

#include "model_config/config.h"
#include "model_config/partition.h"

namespace chimera::apps {

/// Adds a flag for each field of `fields`.
void add_model_fields(CLI::App& app, ModelOverrides& fields);

/// Adds a flag for the element type of exported tensors. `word` receives one of element_type_names().
CLI::Option* add_element_type(CLI::App& app, const std::string& flag, std::string& word,
                              const std::string& description);
/// Adds a flag for the maximum bytes of tensors per exported file.
CLI::Option* add_shard_size(CLI::App& app, const std::string& flag, std::uint64_t& bytes);

/// Adds --partition, which sets how layers are distributed over stages.
void add_partition(CLI::App& app, PartitionChoice& partition);

/// Returns the names of the preset models, separated by commas.
[[nodiscard]] std::string preset_list();

}  // namespace chimera::apps
