#pragma once
// Which ranks have to be connected for the messages of a program.

#include <set>

#include "schedule/program.h"
#include "schedule/rank_layout.h"
#include "transport/neighbors.h"

namespace chimera {

/// Adds the pairs of ranks between which the program's transfers go, in every group.
void add_talking_pairs(const RankLayout& ranks, const Program& program, std::set<RankPair>& pairs);

}  // namespace chimera
