#include "train/observe/own_flight.h"

#include <fmt/format.h>

#include "core/console.h"
#include "core/error.h"

namespace chimera {

FlightJob flight_job(const Job& job) {
  FlightJob flight{.schedule = job.run.schedule.name, .ranks = {}, .sums = job.run.rank_groups()};
  for (std::int64_t rank = 0; rank < job.run.num_ranks(); ++rank)
    flight.ranks.push_back(job.run.ranks.place(RankId(rank)));
  return flight;
}

RecordedRank::RecordedRank(const Job& job, int rank) {
  const std::string folder = job.options.flight_folder();
  if (folder.empty()) return;
  try {
    recorder_.emplace(flight_path(folder, rank));
    record_flight_on(&*recorder_);
  } catch (const Error& error) {
    messages().write(fmt::format("chimera: rank {}: --flight-record {}\n", rank, error.what()));
  }
}

RecordedRank::~RecordedRank() { record_flight_on(nullptr); }

void begin_own_flight(const Job& job) {
  const std::string folder = job.options.flight_folder();
  if (folder.empty()) return;
  try {
    begin_flight(folder, flight_job(job));
  } catch (const Error& error) {
    messages().write(fmt::format("chimera: --flight-record: {}\n", error.what()));
  }
}

void end_own_flight(const Job& job, const std::optional<FlightVerdict>& verdict) {
  const std::string folder = job.options.flight_folder();
  if (folder.empty()) return;
  try {
    if (!verdict) return remove_flight(folder);
    write_verdict(folder, *verdict);
  } catch (const Error& error) {
    messages().write(fmt::format("chimera: --flight-record: {}\n", error.what()));
  }
}

}  // namespace chimera
