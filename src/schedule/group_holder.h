#pragma once

#include "schedule/dependencies.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// A rank that holds a parameter group.
struct GroupHolder {
  RankId rank;
  ParameterGroupId group;
  friend bool operator==(const GroupHolder&, const GroupHolder&) = default;
};

}  // namespace chimera
