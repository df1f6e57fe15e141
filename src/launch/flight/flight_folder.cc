#include "launch/flight/flight_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/output_file.h"

namespace chimera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kJobName = "job.json";
constexpr const char* kVerdictName = "verdict.json";
constexpr int kMostRecords = 1 << 16;

Json to_json(const FlightJob& job) {
  Json ranks = Json::array();
  for (const GroupWorker& place : job.ranks) {
    ranks.push_back({{"group", place.group.value()}, {"worker", place.worker.value()}});
  }
  Json sums = Json::array();
  for (const auto& members : job.sums) {
    Json numbers = Json::array();
    for (const RankId rank : members) numbers.push_back(rank.value());
    sums.push_back(numbers);
  }
  return {{"version", 1}, {"schedule", job.schedule}, {"ranks", ranks}, {"sums", sums}};
}

FlightJob job_of(const Json& json) {
  FlightJob job{.schedule = json.at("schedule").get<std::string>(), .ranks = {}, .sums = {}};
  for (const Json& place : json.at("ranks")) {
    job.ranks.push_back(
        {GroupId(place.at("group").get<std::int32_t>()), WorkerId(place.at("worker").get<std::int32_t>())});
  }
  for (const Json& members : json.at("sums")) {
    std::vector<RankId> ranks;
    for (const Json& rank : members) ranks.emplace_back(rank.get<std::int32_t>());
    job.sums.push_back(std::move(ranks));
  }
  if (job.ranks.empty() || job.ranks.size() > kMostRecords) throw ConfigError("has no ranks, or too many");
  return job;
}

FlightVerdict verdict_of(const Json& json) {
  FlightVerdict verdict{.reason = json.at("reason").get<std::string>(),
                        .culprit = {},
                        .op = json.at("op").get<std::string>(),
                        .nanoseconds = json.at("nanoseconds").get<std::int64_t>()};
  if (!json.at("culprit").is_null()) verdict.culprit = json.at("culprit").get<int>();
  return verdict;
}

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

/// The folder of records that a path means.
fs::path find_folder(const std::string& path) {
  for (const char* name : {"", "flight", "flight-previous"}) {
    fs::path folder = *name == '\0' ? fs::path(path) : fs::path(path) / name;
    std::error_code absent;
    if (fs::exists(folder / kJobName, absent)) return folder;
  }
  throw ConfigError(fmt::format(
      "{}: has no flight records; they are in the folder of --checkpoint or --flight-record of a run that failed",
      path));
}

}  // namespace

std::string flight_path(const std::string& folder, int rank) {
  return fmt::format("{}/rank-{:04}.flight", folder, rank);
}

void begin_flight(const std::string& folder, const FlightJob& job) {
  try {
    const std::string previous = folder + "-previous";
    if (fs::exists(folder)) {
      fs::remove_all(previous);
      fs::rename(folder, previous);
    }
    fs::create_directories(folder);
  } catch (const fs::filesystem_error& error) {
    throw Error(fmt::format("{}: cannot be made ({})", folder, error.code().message()));
  }
  write_whole((fs::path(folder) / kJobName).string(), to_json(job).dump() + "\n");
}

void write_verdict(const std::string& folder, const FlightVerdict& verdict) {
  const Json json = {{"reason", verdict.reason},
                     {"culprit", verdict.culprit ? Json(*verdict.culprit) : Json()},
                     {"op", verdict.op},
                     {"nanoseconds", verdict.nanoseconds}};
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  write_whole((fs::path(folder) / kVerdictName).string(), text + "\n");
}

void remove_flight(const std::string& folder) {
  std::error_code none;
  fs::remove_all(folder, none);
}

Flight read_flight_folder(const std::string& path) {
  const fs::path folder = find_folder(path);
  Flight flight{.folder = folder.string(), .job = {}, .verdict = {}, .ranks = {}};
  try {
    flight.job = job_of(read_json(folder / kJobName));
    if (fs::exists(folder / kVerdictName)) flight.verdict = verdict_of(read_json(folder / kVerdictName));
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(fmt::format("{}: {} or {} is damaged ({})", flight.folder, kJobName, kVerdictName, error.what()));
  }
  for (std::size_t rank = 0; rank < flight.job.ranks.size(); ++rank) {
    try {
      flight.ranks.emplace_back(read_flight(flight_path(flight.folder, static_cast<int>(rank))));
    } catch (const ConfigError&) {
      flight.ranks.emplace_back();
    }
  }
  return flight;
}

}  // namespace chimera
