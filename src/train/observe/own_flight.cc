#include "train/observe/own_flight.h"

#include <fmt/format.h>

#include "core/console.h"
#include "core/error.h"

namespace chimera {

FlightJob flight_job(const Job& job) {
  FlightJob flight{.schedule = job.run.schedule.name,
                   .ranks = std::vector<GroupWorker>(job.launched_count(), kAbsent),
                   .sums = job.rank_groups(),
                   .tensor_parallel = job.options.parallel.tensor_parallel,
                   .planned_step_seconds = job.options.planned.step_seconds,
                   .planned_ops = job.options.planned.ops,
                   .planned_by = job.options.planned.by};
  for (RankId rank(0); rank.value() < job.num_ranks(); rank = RankId(rank.value() + 1))
    flight.ranks[job.launched_rank(rank).index()] = job.run.ranks.place(job.ranks().in_lane(rank));
  for (std::vector<RankId>& members : flight.sums) {
    for (RankId& rank : members) rank = job.launched_rank(rank);
  }
  return flight;
}

namespace {

/// Calls `act` with the flight folder, if the job has one. A failed recorder must not end a run that works.
template <class Act>
void try_in_folder(const Job& job, const std::string& who, const Act& act) {
  const std::string folder = job.options.flight_folder();
  if (folder.empty()) return;
  try {
    act(folder);
  } catch (const Error& error) {
    messages().write(fmt::format("chimera: {}--flight-record: {}\n", who, error.what()));
  }
}

}  // namespace

FlightRecordingScope::FlightRecordingScope(const Job& job, int rank) {
  try_in_folder(job, fmt::format("rank {}: ", rank), [&](const std::string& folder) {
    recorder_.emplace(flight_path(folder, rank));
    set_flight_recorder(&*recorder_);
  });
}

FlightRecordingScope::~FlightRecordingScope() { set_flight_recorder(nullptr); }

void begin_own_flight(const Job& job) {
  try_in_folder(job, "", [&](const std::string& folder) { begin_flight(folder, flight_job(job)); });
}

void rewrite_flight_job(const Job& job) {
  try_in_folder(job, "", [&](const std::string& folder) { write_flight_job(folder, flight_job(job)); });
}

void end_own_flight(const Job& job, const std::optional<FlightVerdict>& verdict) {
  try_in_folder(job, "",
                [&](const std::string& folder) { verdict ? write_verdict(folder, *verdict) : remove_flight(folder); });
}

}  // namespace chimera
