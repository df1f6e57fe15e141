#pragma once

#include <CLI/CLI.hpp>

#include <vector>

#include "train/setup/options.h"

namespace chimera::apps {

struct ExportFlags {
  std::vector<CLI::Option*> details;  // flags that require --export

  void add_to(CLI::App& app, TrainOptions& options);
  /// Throws ConfigError if flags that require --export are given without it.
  void check_flags(const TrainOptions& options) const;
};

/// The value is one of element_type_names(); `word` receives it.
CLI::Option* add_element_type(CLI::App& app, const std::string& flag, std::string& word,
                              const std::string& description);
CLI::Option* add_shard_size(CLI::App& app, const std::string& flag, std::uint64_t& bytes);

}  // namespace chimera::apps
