#pragma once

// Flags that show how a schedule continues without some workers, for example after a host has failed (--without,
// --extra-copies). Other workers that hold the same stages run the ops of the lost workers (generate/detours.h).
// `schedule` and `simulate` use them.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "generate/detours.h"
#include "schedule/schedule.h"

namespace chimera::apps {

struct LostFlags {
  std::vector<std::int64_t> without;  // --without: numbers of the lost workers, counted through all groups
  std::int64_t extra_copies = 0;      // --extra-copies: how many stages may get one more worker, to balance the work
  CLI::Option* without_option = nullptr;

  void add_to(CLI::App& app);
  /// Returns whether workers are lost.
  [[nodiscard]] bool is_given() const { return without_option->count() > 0; }
  /// Returns `healthy`, the schedule of one data-parallel group, unchanged if no worker is lost. Otherwise returns one
  /// schedule for all `groups` data-parallel groups without the lost workers, and writes to `summary`, for text output,
  /// how much longer a step takes. Throws ConfigError, which names the flag, if there is no such schedule.
  [[nodiscard]] Schedule apply_to(const Schedule& healthy, std::int64_t groups, std::string& summary) const;
};

}  // namespace chimera::apps
