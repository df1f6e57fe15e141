#pragma once
// How fast this machine multiplies matrices: what nothing that is made of such products can beat.

#include <map>

#include "core/choices.h"
#include "profile/lockstep.h"

namespace chimera {

/// FLOP/s of a computing rank's products of large matrices while all of them compute, by type; of bfloat16 where the
/// CPU computes with it. The mean over those ranks of the speed at the lower quartile of their times, in time as
/// seconds_of() counts it; all ranks call it.
[[nodiscard]] std::map<DataType, double> measure_matrix_flops(Lockstep& ranks, std::int64_t threads, double seconds);

}  // namespace chimera
