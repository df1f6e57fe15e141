#include "train/setup/connection.h"

#include <utility>

#include "launch/local/rank.h"
#include "train/setup/device.h"

namespace chimera {

std::unique_ptr<Transport> open_transport(const Job& job, Endpoint end) {
  // Only ranks that exchange messages are connected: of 64 ranks in a pipeline, most pairs never do.
  const std::vector<RankPair> pairs = communicating_pairs(job, job.options);
  if (!uses_gpu(job.options)) {
    return connect_gloo({.rank = static_cast<int>(end.rank.value()),
                         .world_size = static_cast<int>(job.num_ranks()),
                         .rendezvous = std::move(end.rendezvous),
                         .timeout = end.timeout,
                         .start_up_timeout = end.start_up_timeout,
                         .groups = job.rank_groups(),
                         .pairs = pairs,
                         .fingerprint = std::move(end.compared),
                         .breaker = std::move(end.breaker)});
  }
  return accelerator().connect({.rank = static_cast<int>(end.rank.value()),
                                .world_size = static_cast<int>(job.num_ranks()),
                                .gpu = device_of(job.options, job.launched_rank(end.rank)).index(),
                                .rendezvous = std::move(end.rendezvous),
                                .groups = job.rank_groups(),
                                .pairs = pairs,
                                .sums_in_order = job.canonical.has_value(),
                                .has_early_sums = has_early_sums(job.programs.training),
                                .first_op_group = first_op_group(job),
                                .fingerprint = std::move(end.compared),
                                .start_up_timeout = end.start_up_timeout,
                                .timeout = end.timeout,
                                .on_group_connected = note_more_progress,
                                .breaker = std::move(end.breaker)});
}

}  // namespace chimera
