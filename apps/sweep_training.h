#pragma once

// `chimera sweep --train`: runs `chimera train` for each row of a sweep (a schedule with its parameters), one after the
// other, and adds columns with the measured speed, memory and loss (kMeasuredColumns). After each run it writes the
// table of --output. If the sweep is interrupted and started again, it takes the finished rows from this table and
// trains only the others.

#include "answers/sweep_answer.h"

namespace chimera::apps {

/// Options of the training runs.
struct SweepTraining {
  std::string data;                // value of `train --data`
  std::vector<std::string> flags;  // further flags of `train`
  std::string output;  // CSV file of the sweep, read at the start and written after each row; empty, `-`: none
};

/// Trains each row that `output` does not already contain, and returns all rows with the columns of kMeasuredColumns.
/// Throws ConfigError if the existing `output` is not a table of these rows, and Error if a training run fails or
/// another process writes `output`.
[[nodiscard]] std::vector<SweepRow> train_rows(std::vector<SweepRow> rows, const SweepTraining& training);

}  // namespace chimera::apps
