#pragma once
// Alternates trainings of the validation grid and profiles.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "profile/lockstep.h"
#include "validation/validation.h"

namespace chimera {

struct GridMeasurement {
  std::vector<GridRun> runs = {};
  std::string data = {};
  std::string folder = {};  // all ranks may create files here
  std::int64_t rounds = 8;
  bool profiles = true;        // before the first and after each round
  double profile_seconds = 4;  // per profile
};

[[nodiscard]] int grid_ranks(const GridMeasurement& grid);

/// Collective; the result is valid on rank 0. The transport has profile_groups(). Calls `say` after every round.
[[nodiscard]] GridTimes measure_grid(const GridMeasurement& grid, Transport& transport, int rank, int world_size,
                                     const std::function<void(const std::string&)>& say);

}  // namespace chimera
