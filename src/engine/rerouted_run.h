#pragma once

// The run of the remaining ranks after a loss (--recover reroute), or with slow ranks (--adapt all). Other ranks hold
// replicas of such a rank's stages and run its ops or a part of them, in one schedule for all data-parallel groups
// together (generate/detours.h). The run therefore has a single group: each remaining rank is a worker, and ranks are
// numbered without gaps. Ranks may also hold *extra copies*: stages that they did not hold when the run was launched.
//
//   launched   rank 0   rank 1   rank 2 (lost)   rank 3
//   remaining  rank 0   rank 1                   rank 2      worker number = rank

#include <cstddef>
#include <functional>

#include "engine/run_shape.h"
#include "generate/detours.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// Returns the ranks of the launched run that are not lost, ascending. The index of a rank is its number in
/// rerouted_run().
[[nodiscard]] std::vector<RankId> remaining_ranks(const RunShape& launched, const std::vector<RankId>& lost);

/// A link that is slower than the others.
struct LinkDelay {
  RankId one;
  RankId other;
  double seconds = 0;  ///< From the send of a message to its arrival, equal in both directions
  friend bool operator==(const LinkDelay&, const LinkDelay&) = default;
};

/// What has changed since the launch. All ranks have the numbers of the launched run.
struct RunChange {
  std::vector<RankId> lost;
  std::vector<GroupHolder> extra_copies = {};  ///< Each a rank that is not lost, and a parameter group
  std::vector<double> factors = {};    ///< [rank]: 2 if its ops take twice as long; empty: all ranks are equally fast
  std::vector<LinkDelay> delays = {};  ///< Slow links
  /// Schedule for these factors and delays, with workers numbered as in detours.h; null: make_detours() makes it, for
  /// equal ranks
  std::shared_ptr<const Schedule> schedule = nullptr;
  friend bool operator==(const RunChange&, const RunChange&) = default;
};

/// Returns the number of a rank's worker among the workers of all groups: g D + w for worker w of group g.
[[nodiscard]] std::size_t worker_number(const RankLayout& ranks, RankId rank);

/// Returns the input of make_detours() for this change.
[[nodiscard]] DetourTask detour_task(const RunShape& launched, const RunChange& change, std::int64_t block_size);

/// Returns the schedule of rerouted_run(), with the workers of all launched ranks. Throws ConfigError if make_detours()
/// does.
[[nodiscard]] Schedule rerouted_schedule(const RunShape& launched, const RunChange& change, std::int64_t block_size);

/// Returns the run of the remaining ranks. Micro-batches keep their samples and their positions in data order
/// (run_shape.h). With --reduction canonical (canonical.h), the workers of a path through the stages run whole blocks
/// of `block_size` micro-batches, which must divide the number of micro-batches of a step; otherwise it is 1. Throws
/// ConfigError if make_detours() does, for example because no remaining rank holds some stage.
[[nodiscard]] RunShape rerouted_run(const RunShape& launched, const RunChange& change, std::int64_t block_size);

/// Returns further extra copies of stages that make the step of rerouted_run() faster, found by balance_detours()
/// (search/extra_copies.h). Together with RunChange::extra_copies, they are at most as many as the stages that lost
/// ranks have held. `fits` returns whether such copies are possible, for example whether ranks have memory for them.
/// Empty if none helps. Throws ConfigError if rerouted_run() does.
[[nodiscard]] std::vector<GroupHolder> balancing_copies(
    const RunShape& launched, const RunChange& change, std::int64_t block_size,
    const std::function<bool(const std::vector<GroupHolder>&)>& fits);

}  // namespace chimera
