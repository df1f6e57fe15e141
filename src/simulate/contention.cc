#include "simulate/contention.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace chimera {

void require_valid(const Contention& contention) {
  for (const double share : {contention.ops_by_sums, contention.sums_by_ops, contention.transfers,
                             contention.node_transfers, contention.ops_by_receives}) {
    if (!std::isfinite(share) || share < 0)
      throw ConfigError(fmt::format("contention: {} is not a finite number of 0 or more", share));
  }
  if (!(contention.sums_overlap >= 0 && contention.sums_overlap < 1))
    throw ConfigError(fmt::format("contention: an overlap of sums of {} is not in [0, 1)", contention.sums_overlap));
  if (!(contention.idle_gain >= 0 && contention.idle_gain < 1))
    throw ConfigError(fmt::format("contention: a gain by idle cores of {} is not in [0, 1)", contention.idle_gain));
}

}  // namespace chimera
