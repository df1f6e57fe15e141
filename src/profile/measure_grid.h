#pragma once
// The validation grid's trainings and the machine's profile, measured in turns.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/validation.h"
#include "profile/lockstep.h"

namespace chimera {

/// What all ranks are told.
struct GridMeasurement {
  std::vector<GridRun> runs = {};
  std::string data = {};    // a text
  std::string folder = {};  // where all ranks may make files
  std::int64_t rounds = 8;
  bool profiles = true;        // before the first round and after every one
  double profile_seconds = 4;  // each
};

/// Processes that the runs need.
[[nodiscard]] int grid_ranks(const GridMeasurement& grid);

/// Measures as one of the ranks, all of which call it. What rank 0 gets counts. The transport has
/// profile_groups(). `say` gets a few words after every round.
[[nodiscard]] GridTimes measure_grid(const GridMeasurement& grid, Transport& transport, int rank, int world_size,
                                     const std::function<void(const std::string&)>& say);

}  // namespace chimera
