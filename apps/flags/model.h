#pragma once

// The flags that change single fields of a model (--layers, --hidden, ...), cut it into stages (--partition), and say
// how its tensors are exported.

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "model_config/config.h"
#include "model_config/partition.h"

namespace chimera::apps {

struct ModelFlags {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t key_value_heads = 0;
  std::int64_t vocabulary = 0;
  std::optional<bool> tied;
  CLI::Option* layers_option = nullptr;
  CLI::Option* hidden_option = nullptr;
  CLI::Option* heads_option = nullptr;
  CLI::Option* key_value_heads_option = nullptr;
  CLI::Option* vocabulary_option = nullptr;

  void add_to(CLI::App& app);
  [[nodiscard]] ModelOverrides overrides() const;
};

/// Flag for the type of exported tensors; `word` receives one of element_type_names().
CLI::Option* add_element_type(CLI::App& app, const std::string& flag, std::string& word,
                              const std::string& description);
CLI::Option* add_shard_size(CLI::App& app, const std::string& flag, std::uint64_t& bytes);

void add_partition(CLI::App& app, PartitionChoice& partition);

[[nodiscard]] std::string listed_models();

}  // namespace chimera::apps
