#include "train/observe/own_flight.h"

#include <fmt/format.h>

#include "core/console.h"
#include "core/error.h"

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

namespace {

/// Calls `act` if there is a folder. A failed recorder must not end a run that works.
template <class Act>
void try_in_folder(const std::string& folder, const std::string& who, const Act& act) {
  if (folder.empty()) return;
  try {
    act();
  } catch (const Error& error) {
    messages().write(fmt::format("chimera: {}--flight-record: {}\n", who, error.what()));
  }
}

}  // namespace

FlightRecordingScope::FlightRecordingScope(const std::string& folder, int rank) {
  try_in_folder(folder, fmt::format("rank {}: ", rank), [&] {
    recorder_.emplace(flight_path(folder, rank));
    set_flight_recorder(&*recorder_);
  });
}

FlightRecordingScope::~FlightRecordingScope() { set_flight_recorder(nullptr); }

void begin_own_flight(const std::string& folder, const FlightJob& job) {
  try_in_folder(folder, "", [&] { begin_flight(folder, job); });
}

void rewrite_flight_job(const std::string& folder, const FlightJob& job) {
  try_in_folder(folder, "", [&] { write_flight_job(folder, job); });
}

void end_own_flight(const std::string& folder, const std::optional<FlightVerdict>& verdict) {
  try_in_folder(folder, "", [&] { verdict ? write_verdict(folder, *verdict) : remove_flight(folder); });
}

}  // namespace chimera
