#pragma once

#include <string>

#include "schedule/schedule.h"

namespace chimera {

/// The way a replica's first D stages run through the D workers, which later ones may turn: "down" from each worker to
/// the next (the last's next is the first), "up" likewise backwards, "" where neither holds.
[[nodiscard]] std::string direction(const Schedule& schedule, std::size_t replica);

/// `down`, `up`, or `replica 2`.
[[nodiscard]] std::string replica_name(const Schedule& schedule, std::size_t replica);

}  // namespace chimera
