#include "launch/flight/flight_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "rendezvous/address.h"

namespace chimera {
namespace {

struct PackedEvent {
  std::int64_t nanoseconds = 0;
  std::int32_t step = 0;
  std::uint8_t phase = 0;
  std::uint8_t instruction = 0;
  std::uint8_t op = 0;
  std::uint8_t slice = 0;
  std::int32_t stage = 0;
  std::int32_t micro_batch = 0;
  std::int16_t replica = 0;
  std::int16_t peer = 0;
  std::int32_t group = 0;
};
static_assert(sizeof(PackedEvent) == 32);
static_assert(kMostSlices <= 256);  // PackedEvent::slice

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t capacity = kFlightEvents;
  std::int32_t rank = 0;
  std::uint64_t count = 0;
  static constexpr std::array<char, 8> kMagic = {'C', 'H', 'F', 'L', 'Y', '0', '0', '1'};
};
static_assert(sizeof(Header) == 24);

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kFileBytes = kHeaderBytes + kFlightEvents * sizeof(PackedEvent);

PackedEvent pack(const RankProgress& progress) {
  const Instruction& at = progress.instruction;
  return {.nanoseconds = monotonic_nanoseconds(),
          .step = static_cast<std::int32_t>(progress.step),
          .phase = static_cast<std::uint8_t>(progress.phase),
          .instruction = static_cast<std::uint8_t>(at.kind),
          .op = static_cast<std::uint8_t>(at.op.kind),
          .slice = static_cast<std::uint8_t>(at.op.slice),
          .stage = static_cast<std::int32_t>(at.op.stage.value()),
          .micro_batch = static_cast<std::int32_t>(at.op.micro_batch.value()),
          .replica = static_cast<std::int16_t>(at.op.replica.value()),
          .peer = static_cast<std::int16_t>(at.peer.value()),
          .group = static_cast<std::int32_t>(at.group.value())};
}

bool is_valid(const PackedEvent& packed) {
  return packed.phase <= static_cast<std::uint8_t>(RankProgress::Phase::Ending) && packed.op < kOpKinds &&
         packed.instruction <= static_cast<std::uint8_t>(InstructionKind::Load) && packed.step >= 0 &&
         packed.stage >= 0 && packed.micro_batch >= 0 && packed.replica >= 0 && packed.peer >= 0 && packed.group >= 0;
}

FlightEvent unpack(const PackedEvent& packed) {
  Instruction at{.kind = static_cast<InstructionKind>(packed.instruction)};
  at.op.kind = static_cast<OpKind>(packed.op);
  at.op.stage = StageId(packed.stage);
  at.op.replica = ReplicaId(packed.replica);
  at.op.micro_batch = MicroBatchId(packed.micro_batch);
  at.op.slice = packed.slice;
  at.peer = WorkerId(packed.peer);
  at.group = ParameterGroupId(packed.group);
  return {
      .nanoseconds = packed.nanoseconds,
      .progress = {.phase = static_cast<RankProgress::Phase>(packed.phase), .step = packed.step, .instruction = at}};
}

thread_local FlightRecorder* current_recorder = nullptr;

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kJobName = "job.json";
constexpr const char* kVerdictName = "verdict.json";
constexpr int kMostRecordedRanks = 1 << 16;

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
  if (job.ranks.empty() || job.ranks.size() > kMostRecordedRanks) throw ConfigError("has no ranks, or too many");
  return job;
}

FlightVerdict verdict_of(const Json& json) {
  FlightVerdict verdict{.reason = json.at("reason").get<std::string>(),
                        .culprit = {},
                        .op = json.at("op").get<std::string>(),
                        .nanoseconds = json.at("nanoseconds").get<std::int64_t>(),
                        .unix_seconds = json.value("unix_seconds", std::int64_t{0}),
                        .host = json.value("host", "")};
  if (!json.at("culprit").is_null()) verdict.culprit = json.at("culprit").get<int>();
  return verdict;
}

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

/// Returns why a path is no folder of flight records; empty if it is one or absent.
std::string other_content(const std::string& folder) {
  std::error_code absent;
  if (!fs::exists(folder, absent)) return "";
  if (!fs::is_directory(folder, absent)) return "is not a folder";
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    const std::string name = entry.path().filename().string();
    const bool is_record = name == kJobName || name == kVerdictName || entry.path().extension() == ".flight" ||
                           name.find(".unfinished") != std::string::npos;
    if (!is_record) return fmt::format("has {}, which is no flight record", name);
  }
  return "";
}

bool is_recorded(const fs::path& file) {
  const FileDescriptor record(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  return record.get() >= 0 && ::flock(record.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

struct FlightRecorder::File {
  Header header;
  std::array<std::byte, kHeaderBytes - sizeof(Header)> unused;
  std::array<PackedEvent, kFlightEvents> events;
};

FlightRecorder::FlightRecorder(const std::string& path, int rank) {
  static_assert(sizeof(File) == kFileBytes);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  const int refusal = file.get() < 0 ? errno : ::posix_fallocate(file.get(), 0, kFileBytes);
  if (refusal != 0) throw Error(fmt::format("{}: cannot be written ({})", path, system_message(refusal)));
  void* memory = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) check_system(-1, "map " + path);
  static_cast<void>(::flock(file.get(), LOCK_EX | LOCK_NB));
  lock_ = std::move(file);
  file_ = static_cast<File*>(memory);
  file_->header = Header{};
  file_->header.rank = rank;
}

FlightRecorder::~FlightRecorder() { ::munmap(file_, kFileBytes); }

/// Increments the count last, so that a killed process leaves only complete events.
void FlightRecorder::note(const RankProgress& progress) {
  const std::atomic_ref<std::uint64_t> count(file_->header.count);
  const std::uint64_t index = count.load(std::memory_order_relaxed);
  file_->events[index % kFlightEvents] = pack(progress);
  count.store(index + 1, std::memory_order_release);
}

std::vector<FlightEvent> read_flight(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string bytes(kFileBytes + 1, '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!stream.is_open()) throw ConfigError(fmt::format("{}: cannot be read", path));
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (stream.gcount() != static_cast<std::streamsize>(kFileBytes) || header.magic != Header::kMagic ||
      header.capacity != kFlightEvents) {
    throw ConfigError(fmt::format("{}: is not a flight record of this version", path));
  }
  std::vector<FlightEvent> events;
  const std::uint64_t first = header.count - std::min<std::uint64_t>(header.count, kFlightEvents);
  for (std::uint64_t index = first; index < header.count; ++index) {
    PackedEvent packed;
    std::memcpy(&packed, bytes.data() + kHeaderBytes + index % kFlightEvents * sizeof(PackedEvent), sizeof packed);
    if (is_valid(packed)) events.push_back(unpack(packed));
  }
  return events;
}

void record_flight_on(FlightRecorder* recorder) { current_recorder = recorder; }

void record_flight(const RankProgress& progress) {
  if (current_recorder != nullptr) current_recorder->note(progress);
}

std::string flight_path(const std::string& folder, int rank) {
  return fmt::format("{}/rank-{:04}.flight", folder, rank);
}

void require_flight_folder(const std::string& folder) {
  for (const std::string& replaced : {folder, folder + "-previous"}) {
    if (const std::string other = other_content(replaced); !other.empty()) {
      throw ConfigError(fmt::format("{}: {}; give another folder", replaced, other));
    }
  }
}

void require_no_recording(const std::string& folder) {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    if (entry.path().extension() != ".flight" || !is_recorded(entry.path())) continue;
    throw ConfigError(fmt::format("{}: another run records in this folder; give another folder", folder));
  }
}

void begin_flight(const std::string& folder, const FlightJob& job) {
  try {
    const std::string previous = folder + "-previous";
    require_flight_folder(folder);
    if (fs::exists(folder)) {
      fs::remove_all(previous);
      fs::rename(folder, previous);
    }
    fs::create_directories(folder);
  } catch (const fs::filesystem_error& error) {
    throw Error(fmt::format("{}: cannot be made ({})", folder, error.code().message()));
  }
  write_whole((fs::path(folder) / kJobName).string(), json_text(to_json(job)) + "\n");
}

void write_verdict(const std::string& folder, const FlightVerdict& verdict) {
  const Json json = {{"reason", verdict.reason},
                     {"culprit", verdict.culprit ? Json(*verdict.culprit) : Json()},
                     {"op", verdict.op},
                     {"nanoseconds", verdict.nanoseconds},
                     {"unix_seconds", static_cast<std::int64_t>(std::time(nullptr))},
                     {"host", host_name()}};
  const std::string text = json_text(json);
  write_whole((fs::path(folder) / kVerdictName).string(), text + "\n");
}

void remove_flight(const std::string& folder) {
  std::error_code none;
  if (other_content(folder).empty()) fs::remove_all(folder, none);
}

Flight read_flight_folder(const std::string& path) {
  const fs::path folder = find_folder(path);
  Flight flight{.folder = folder.string(), .job = {}, .verdict = {}, .ranks = {}};
  try {
    flight.job = job_of(read_ordered_json(read_whole(folder / kJobName)));
    if (fs::exists(folder / kVerdictName))
      flight.verdict = verdict_of(read_ordered_json(read_whole(folder / kVerdictName)));
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
