#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "check/check_limits.h"

namespace chimera::apps {

/// --max-in-flight, and --memory with --activation-bytes and --weight-bytes.
struct LimitFlags {
  /// `consequence`: help text on schedules beyond the limit.
  void add_to(CLI::App& app, const std::string& consequence = "");
  /// Throws ConfigError if only some of the last three flags are given.
  [[nodiscard]] Limits limits() const;
  /// Returns the given flags, such as `--max-in-flight 4, --memory 1e9`.
  [[nodiscard]] std::string in_words() const;

 private:
  double in_flight_ = 0;
  MemoryLimit memory_;
  CLI::Option* in_flight_option_ = nullptr;
  CLI::Option* memory_option_ = nullptr;
  std::vector<CLI::Option*> bytes_options_;
};

}  // namespace chimera::apps
