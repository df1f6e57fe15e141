#pragma once

// `chimera sweep --train`: runs `chimera train` for each row of a sweep, one after the other, and adds columns with the
// measured speed, memory and loss (kMeasured). It writes the table of --output after each row. A restarted sweep takes
// the rows from this table and trains only the others.

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
