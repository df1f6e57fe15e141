#include "simulate/contention.h"

#include <fmt/format.h>

#include "core/error.h"

namespace chimera {
namespace {

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

}  // namespace

void require_valid(const SharedCores& cores) {
  if (!(cores.cores > 0)) throw ConfigError(fmt::format("cores: {} is not a number above 0", cores.cores));
  if (!(cores.all_reduce_share >= 0 && cores.all_reduce_share <= 1))
    throw ConfigError(fmt::format("computing share of all-reduces: {} is not in [0, 1]", cores.all_reduce_share));
  if (!(std::isfinite(cores.switching) && cores.switching >= 0))
    throw ConfigError(fmt::format("cost of switching: {} is not a finite number of 0 or more", cores.switching));
  require_valid(cores.contention);
}

}  // namespace chimera
