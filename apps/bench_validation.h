#pragma once
// `chimera bench --validate`.

#include <string>

#include "commands.h"
#include "options.h"

namespace chimera::apps {

struct ValidationFlags {
  std::string machine = {};  // a profile; empty: measured in turns with the runs
  std::string only = {};     // runs whose words contain this
  std::int64_t rounds = 8;
  Format format = Format::Text;
  std::string output = {};  // empty: standard output
  std::string folder = {};  // where ranks find the text and meet; made by the launcher
};

/// Starts the ranks that measure, then writes the table; in a rank, measures. Returns the exit code.
[[nodiscard]] int run_validation(const ValidationFlags& flags, const Invocation& invocation);

}  // namespace chimera::apps
