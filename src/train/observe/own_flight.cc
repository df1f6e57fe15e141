#include "train/observe/own_flight.h"

#include <fmt/format.h>

#include "core/console.h"
#include "core/error.h"

namespace chimera {

FlightJob flight_job(const Job& job) {
  FlightJob flight{.schedule = job.run.schedule.name,
                   .sums = job.rank_groups(),
                   .tensor_parallel = job.options.tensor_parallel,
                   .planned_step_seconds = job.options.planned_step_seconds,
                   .planned_ops = job.options.planned_ops};
  for (std::int64_t rank = 0; rank < job.num_ranks(); ++rank)
    flight.ranks.push_back(job.run.ranks.place(job.ranks().in_lane(RankId(rank))));
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

void end_own_flight(const Job& job, const std::optional<FlightVerdict>& verdict) {
  try_in_folder(job, "",
                [&](const std::string& folder) { verdict ? write_verdict(folder, *verdict) : remove_flight(folder); });
}

}  // namespace chimera
