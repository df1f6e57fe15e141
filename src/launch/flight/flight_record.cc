#include "launch/flight/flight_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ctime>
#include <fstream>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/clock.h"
#include "core/console.h"
#include "core/files.h"
#include "core/host_name.h"
#include "core/json.h"
#include "core/reject.h"

template <class Tag, class Rep>
struct nlohmann::adl_serializer<chimera::Id<Tag, Rep>> {
  static void to_json(nlohmann::json& json, const chimera::Id<Tag, Rep>& id) { json = id.value(); }
  static void from_json(const nlohmann::json& json, chimera::Id<Tag, Rep>& id) {
    id = chimera::Id<Tag, Rep>(json.get<std::int32_t>());
  }
};

template <class Value>
struct nlohmann::adl_serializer<std::optional<Value>> {
  static void to_json(nlohmann::json& json, const std::optional<Value>& value) {
    json = value ? nlohmann::json(*value) : nlohmann::json();
  }
  static void from_json(const nlohmann::json& json, std::optional<Value>& value) {
    if (!json.is_null()) value = json.get<Value>();
  }
};

namespace chimera {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GroupWorker, group, worker)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FlightJob, schedule, ranks, sums, tensor_parallel, planned_step_seconds,
                                                planned_ops, planned_by)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FlightVerdict, reason, culprit, op, nanoseconds, unix_seconds, host,
                                                others_share, busiest_other)

namespace {

static_assert(std::is_trivially_copyable_v<FlightEvent>, "it is stored as bytes");

constexpr std::size_t kHeaderBytes = 64;

struct Header {
  static constexpr std::array<char, 8> kMagic = {'C', 'H', 'F', 'L', 'Y', '0', '0', '2'};
  std::array<char, 8> magic = kMagic;
  std::uint32_t capacity = kFlightEvents;
  std::uint32_t event_bytes = sizeof(FlightEvent);  // a build whose instructions differ rejects the file
  std::uint64_t count = 0;
};

/// A crash of the machine may leave any bytes.
bool is_valid(const RankProgress& progress) {
  const auto& [kind, op, peer, group, step_of_program] = progress.instruction;
  return progress.phase <= RankProgress::Phase::Ending && kind <= InstructionKind::Load &&
         static_cast<std::size_t>(op.kind) < kOpKinds && op.slice >= 0 && op.slice < kMaxSlices && progress.step >= 0 &&
         op.stage.value() >= 0 && op.micro_batch.value() >= 0 && op.replica.value() >= 0 && peer.value() >= 0 &&
         group.value() >= 0;
}

thread_local FlightRecorder* current_recorder = nullptr;

namespace fs = std::filesystem;

constexpr const char* kJobName = "job.json";
constexpr const char* kVerdictName = "verdict.json";
constexpr int kMaxRecordedRanks = 1 << 16;

/// Accepts the folder itself or the run's folder, newest records first.
fs::path find_folder(const std::string& path) {
  for (const char* name : {"", "flight", "flight-previous"}) {
    fs::path folder = *name == '\0' ? fs::path(path) : fs::path(path) / name;
    if (path_exists(folder / kJobName)) return folder;
  }
  reject("{}: has no flight records; they are in the folder of --checkpoint or --flight-record of a run that failed",
         path);
}

/// Returns why a path is no folder of flight records; empty if it is one or absent.
std::string other_content(const std::string& folder) {
  std::error_code absent;
  if (!path_exists(folder)) return "";
  if (!is_folder(folder)) return "is not a folder";
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

std::string to_text(const RankProgress& progress) {
  switch (progress.phase) {
    case RankProgress::Phase::StartUp: return "start-up";
    case RankProgress::Phase::Joining: return "joining the other ranks";
    case RankProgress::Phase::Steps: return fmt::format("{} in step {}", to_text(progress.instruction), progress.step);
    case RankProgress::Phase::Ending: return "its end";
  }
  return {};
}

bool waits_for_others(const RankProgress& progress) {
  if (progress.phase != RankProgress::Phase::Steps) return progress.phase == RankProgress::Phase::Joining;
  switch (progress.instruction.kind) {
    case InstructionKind::WaitReceive:
    case InstructionKind::WaitSend:
    case InstructionKind::WaitAllReduce:
    case InstructionKind::ReduceScalars: return true;
    default: return false;
  }
}

/// Content of a flight record.
struct FlightRecorder::File {
  Header header;
  alignas(kHeaderBytes) std::array<FlightEvent, kFlightEvents> events;
};

FlightRecorder::FlightRecorder(const std::string& path) {
  static_assert(sizeof(File) == kHeaderBytes + kFlightEvents * sizeof(FlightEvent));
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  // Without allocation, a full disk would end the rank by SIGBUS at a later note.
  const int refusal = file.get() < 0 ? errno : ::posix_fallocate(file.get(), 0, sizeof(File));
  if (refusal != 0) throw Error(fmt::format("{}: cannot be written ({})", path, system_message(refusal)));
  void* memory = ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) check_system(-1, "map " + path);
  static_cast<void>(::flock(file.get(), LOCK_EX | LOCK_NB));  // the kernel releases it, also after a kill
  lock_ = std::move(file);
  file_ = static_cast<File*>(memory);
  file_->header = Header{};
}

FlightRecorder::~FlightRecorder() { ::munmap(file_, sizeof(File)); }

/// Increments the count last, so that a killed process leaves only complete events.
void FlightRecorder::note(const RankProgress& progress) {
  const std::atomic_ref<std::uint64_t> count(file_->header.count);
  const std::uint64_t index = count.load(std::memory_order_relaxed);
  file_->events[index % kFlightEvents] = {.nanoseconds = monotonic_nanoseconds(), .progress = progress};
  count.store(index + 1, std::memory_order_release);
}

std::vector<FlightEvent> FlightRecorder::read(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream.is_open()) reject("{}: cannot be read", path);
  const auto file = std::make_unique<File>();
  stream.read(reinterpret_cast<char*>(file.get()), sizeof(File));
  const bool is_whole = stream.good() && stream.peek() == std::ifstream::traits_type::eof();
  const auto& [magic, capacity, event_bytes, count] = file->header;
  if (!is_whole || magic != Header::kMagic || capacity != kFlightEvents || event_bytes != sizeof(FlightEvent))
    reject("{}: is not a flight record of this version", path);
  std::vector<FlightEvent> events;
  // The writer may be at work: an event that it overwrites meanwhile is invalid, or newer than its neighbors.
  for (std::uint64_t index = count - std::min<std::uint64_t>(count, kFlightEvents); index < count; ++index) {
    const FlightEvent& event = file->events[index % kFlightEvents];
    if (is_valid(event.progress)) events.push_back(event);
  }
  return events;
}

void set_flight_recorder(FlightRecorder* recorder) { current_recorder = recorder; }

void record_flight(const RankProgress& progress) {
  if (current_recorder != nullptr) current_recorder->note(progress);
}

void try_flight(const std::string& folder, const std::function<void()>& task, const std::string& who) {
  try {
    if (!folder.empty()) task();
  } catch (const Error& error) {
    print_message("{}--flight-record: {}", who, error.what());
  }
}

std::string flight_path(const std::string& folder, int rank) {
  return fmt::format("{}/rank-{:04}.flight", folder, rank);
}

void require_flight_folder(const std::string& folder) {
  for (const std::string& replaced : {folder, folder + "-previous"})
    if (const std::string other = other_content(replaced); !other.empty())
      reject("{}: {}; give another folder", replaced, other);
}

void require_no_recording(const std::string& folder) {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    if (entry.path().extension() != ".flight" || !is_recorded(entry.path())) continue;
    reject("{}: another run records in this folder; give another folder", folder);
  }
}

// Keeps the records of one earlier attempt: a restarted job may fail for another reason, and the first failure is the
// one to understand.
void begin_flight(const std::string& folder, const FlightJob& job) {
  try {
    const std::string previous = folder + "-previous";
    require_flight_folder(folder);
    if (path_exists(folder)) {
      fs::remove_all(previous);
      fs::rename(folder, previous);
    }
    fs::create_directories(folder);
  } catch (const fs::filesystem_error& error) {
    throw Error(fmt::format("{}: cannot be made ({})", folder, error.code().message()));
  }
  write_flight_job(folder, job);
}

void write_flight_job(const std::string& folder, const FlightJob& job) {
  nlohmann::json json = job;
  json["version"] = 2;
  write_whole((fs::path(folder) / kJobName).string(), json_text(json) + "\n");
}

void write_verdict(const std::string& folder, const FlightVerdict& verdict) {
  FlightVerdict noted = verdict;
  noted.unix_seconds = std::time(nullptr);
  noted.host = host_name();
  write_whole((fs::path(folder) / kVerdictName).string(), json_text(nlohmann::json(noted)) + "\n");
}

void remove_flight(const std::string& folder) {
  std::error_code none;
  if (other_content(folder).empty()) fs::remove_all(folder, none);
}

bool has_flight(const std::string& path) {
  return path_exists(fs::path(path) / kJobName) || path_exists(fs::path(path) / "flight" / kJobName);
}

Flight read_flight_folder(const std::string& path) {
  const fs::path folder = find_folder(path);
  Flight flight{.folder = folder.string()};
  try {
    flight.job = read_json(read_whole(folder / kJobName)).get<FlightJob>();
    if (path_exists(folder / kVerdictName))
      flight.verdict = read_json(read_whole(folder / kVerdictName)).get<FlightVerdict>();
  } catch (const nlohmann::json::exception& error) {
    reject("{}: {} or {} is damaged ({})", flight.folder, kJobName, kVerdictName, error.what());
  }
  if (flight.job.ranks.empty() || flight.job.ranks.size() > kMaxRecordedRanks || flight.job.tensor_parallel < 1)
    reject("{}: {} has no ranks, or too many", flight.folder, kJobName);
  for (std::size_t rank = 0; rank < flight.job.ranks.size(); ++rank) {
    try {
      flight.ranks.emplace_back(FlightRecorder::read(flight_path(flight.folder, static_cast<int>(rank))));
    } catch (const ConfigError&) {
      flight.ranks.emplace_back();
    }
  }
  return flight;
}

}  // namespace chimera
