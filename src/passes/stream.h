#pragma once
// The program of a run of steps that an asynchronous schedule does without a flush, cut into one piece a step.

#include <cstdint>
#include <vector>

#include "passes/lower.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera {

/// A worker's piece of step k ends where it sums that step's norms and losses: all workers reach that at about one
/// time, so a piece of step k may have ops of step k - 1 and k + 1 too. The last piece goes to the end of the run,
/// where nothing is under way.
///
/// The middle of a long run repeats itself. `program` has the run's first and last pieces and is as long as it takes
/// for two neighbours in its middle to be equal but for their numbers; in between, that piece stands for all the
/// others. A run that never repeats itself is there as a whole.
struct Stream {
  std::int64_t steps = 0;                      // K, of the run
  std::int64_t micro_batches = 0;              // N, of a step
  std::int64_t updates = 0;                    // of a stage in a step
  Schedule schedule;                           // unrolled, of min(K, so many) steps
  Program program;                             // of `schedule`
  std::vector<std::vector<std::size_t>> ends;  // [worker][piece]: positions in the program

  /// What worker w does in step `step` of the run, 0 <= step < K, in the micro-batches and weight versions of a run
  /// whose first step is step `first` of the training.
  [[nodiscard]] std::vector<Instruction> piece(std::size_t worker, std::int64_t step, std::int64_t first = 0) const;
};

/// Lowers `steps` repetitions of `step`, an asynchronous schedule of one replica whose updates take a number of
/// micro-batches that divides N. Throws ConfigError as unroll() does, and where the number does not divide N.
[[nodiscard]] Stream lower_stream(const Schedule& step, std::int64_t steps, LoweringOptions options);

}  // namespace chimera
