#pragma once
// Groups of ranks that sum while a machine is measured.

#include "core/ids.h"
#include "transport/transport.h"

namespace chimera {

inline const ParameterGroupId kPairGroup(2);       // ranks 0 and 1, behind the stages of a pipeline of two
inline const ParameterGroupId kOtherPairGroup(3);  // they too

/// Groups of ranks that the transport of measure_machine() must have.
[[nodiscard]] inline RankGroups profile_groups() {
  const RankId first(0);
  const RankId second(1);
  return {{first}, {second}, {first, second}, {first, second}};
}

}  // namespace chimera
