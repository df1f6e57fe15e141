#pragma once
// The flags that limit what workers may hold.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "check/check_limits.h"

namespace chimera::apps {

/// --max-in-flight; and --memory with --activation-bytes and --weight-bytes.
struct LimitFlags {
  /// `consequence`: what becomes of a schedule that holds more, for --help; may be empty.
  void add_to(CLI::App& app, const std::string& consequence = "");
  /// What the flags say; throws ConfigError where the last three do not come together.
  [[nodiscard]] Limits limits() const;
  /// `--max-in-flight 4, --memory 1e9`: those that are given.
  [[nodiscard]] std::string in_words() const;

 private:
  double in_flight_ = 0;
  MemoryLimit memory_;
  CLI::Option* in_flight_option_ = nullptr;
  CLI::Option* memory_option_ = nullptr;
  std::vector<CLI::Option*> bytes_options_;
};

}  // namespace chimera::apps
