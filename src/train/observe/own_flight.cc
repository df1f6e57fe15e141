#include "train/observe/own_flight.h"

namespace chimera {

FlightJob flight_job(const JobShape& job, const PlannedTimes& planned) {
  FlightJob flight{.schedule = job.run.schedule.name,
                   .ranks = std::vector<GroupWorker>(job.launched_count(), kAbsent),
                   .sums = job.rank_groups(),
                   .tensor_parallel = job.tensor_parallel,
                   .planned_step_seconds = planned.step_seconds,
                   .planned_ops = planned.ops,
                   .planned_by = planned.by};
  // Records are by the ranks of the launch. After a loss, the remaining ranks have other numbers, and lost ones stay
  // absent.
  for (RankId rank(0); rank.value() < job.num_ranks(); rank = RankId(rank.value() + 1))
    flight.ranks[job.launched_rank(rank).index()] = job.run.ranks.place(job.ranks().in_lane(rank));
  for (std::vector<RankId>& members : flight.sums) {
    for (RankId& rank : members) rank = job.launched_rank(rank);
  }
  return flight;
}

}  // namespace chimera
