#pragma once
// --partition: how the model's layers are dealt out to stages.

#include <CLI/CLI.hpp>

#include <string>

namespace chimera::apps {

/// The flag, with its help; named_partition() reads the value.
void add_partition(CLI::App& app, std::string& partition);

}  // namespace chimera::apps
