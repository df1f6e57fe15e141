#pragma once
// --partition: how the model's layers are dealt out to stages.

#include <CLI/CLI.hpp>

#include "model_config/partition.h"

namespace chimera::apps {

/// The flag, with its help.
void add_partition(CLI::App& app, PartitionChoice& partition);

}  // namespace chimera::apps
