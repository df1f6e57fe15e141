#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "check/check_limits.h"

namespace chimera::apps {

/// The flags --max-in-flight, --memory, --activation-bytes and --weight-bytes
struct LimitFlags {
  /// `consequence` ends the help text of both limits: what a command does with schedules beyond the limit.
  void add_to(CLI::App& app, const std::string& consequence = "");
  /// Throws ConfigError if only some of --memory, --activation-bytes and --weight-bytes are given.
  [[nodiscard]] Limits limits() const;
  /// Example: `--max-in-flight 4, --memory 1e9`.
  [[nodiscard]] std::string in_words() const;

 private:
  double in_flight_ = 0;
  MemoryLimit memory_;
  CLI::Option* in_flight_option_ = nullptr;
  CLI::Option* memory_option_ = nullptr;
  std::vector<CLI::Option*> bytes_options_;
};

}  // namespace chimera::apps
