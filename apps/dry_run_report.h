#pragma once
// What `chimera train --dry-run` prints.

#include <string>

#include "train/setup/dry_run.h"

namespace chimera::apps {

/// The run in a few lines, what is predicted, and one line a rank.
[[nodiscard]] std::string dry_run_text(const Job& job, const Forecast& forecast);
/// The same in full. Fields: docs/dry_run.md.
[[nodiscard]] std::string dry_run_json(const Job& job, const Forecast& forecast);

}  // namespace chimera::apps
