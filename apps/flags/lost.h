#pragma once

// Flags for schedules without lost workers (--without, --extra-copies). `schedule` and `simulate` use them.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "generate/detours.h"
#include "schedule/schedule.h"

namespace chimera::apps {

struct LostFlags {
  std::vector<std::int64_t> without;  // --without: lost workers, from 0 to D W - 1; worker w of group g is g D + w
  std::int64_t extra_copies = 0;      // --extra-copies: maximum number of stages of which one more worker gets a copy
  CLI::Option* without_option = nullptr;

  void add_to(CLI::App& app);
  /// Returns whether workers are lost.
  [[nodiscard]] bool is_given() const { return without_option->count() > 0; }
  /// Returns `healthy` unchanged, or the schedule of `groups` groups without the lost workers. Writes to `summary` how
  /// much longer a step takes, for text output. Throws ConfigError, which names the flag, if there is no such schedule.
  [[nodiscard]] Schedule apply_to(const Schedule& healthy, std::int64_t groups, std::string& summary) const;
};

}  // namespace chimera::apps
