#pragma once

// `chimera sweep --train`: trains the rows of a sweep one after the other with `chimera train`, and adds what was
// measured. The table of --output is written after each row, so that a restarted sweep continues behind it.

#include <string>
#include <vector>

#include "sweep_rows.h"

namespace chimera::apps {

struct SweepTraining {
  std::string data;                // value of `train --data`
  std::vector<std::string> flags;  // further flags of `train`
  std::string output;              // table in CSV to continue; empty or `-`: none
};

/// Returns the rows with the columns of kMeasured. Throws ConfigError if the output is not a table of these rows, and
/// Error if a training fails or another process writes the output.
[[nodiscard]] std::vector<SweepRow> train_rows(std::vector<SweepRow> rows, const SweepTraining& training);

}  // namespace chimera::apps
