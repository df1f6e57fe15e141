#pragma once
// --export, --export-dtype, --export-shard-size: the folder that a run leaves for transformers.

#include <CLI/CLI.hpp>

#include <vector>

#include "train/setup/options.h"

namespace chimera::apps {

struct ExportFlags {
  std::vector<CLI::Option*> details;  // that say how it is written

  void add_to(CLI::App& app, TrainOptions& options);
  /// Throws ConfigError where details are given without --export.
  void require_sense(const TrainOptions& options) const;
};

/// A flag for the type of a folder's tensors, one of element_words().
CLI::Option* add_element_type(CLI::App& app, const std::string& flag, std::string& word,
                              const std::string& description);
/// A flag for the largest size of a file of weights.
CLI::Option* add_shard_size(CLI::App& app, const std::string& flag, std::uint64_t& bytes);

}  // namespace chimera::apps
