#include "launch/flight/flight_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>

#include "core/clock.h"
#include "core/error.h"
#include "core/file_descriptor.h"

namespace chimera {
namespace {

/// An event as the file has it.
struct Record {
  std::int64_t nanoseconds = 0;
  std::int32_t step = 0;
  std::uint8_t phase = 0;
  std::uint8_t instruction = 0;
  std::uint8_t op = 0;
  std::uint8_t unused = 0;
  std::int32_t stage = 0;
  std::int32_t micro_batch = 0;
  std::int16_t replica = 0;
  std::int16_t peer = 0;
  std::int32_t group = 0;
};
static_assert(sizeof(Record) == 32);

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t capacity = kFlightEvents;
  std::int32_t rank = 0;
  std::uint64_t count = 0;  // noted so far
  static constexpr std::array<char, 8> kMagic = {'C', 'H', 'F', 'L', 'Y', '0', '0', '1'};
};
static_assert(sizeof(Header) == 24);

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kFileBytes = kHeaderBytes + kFlightEvents * sizeof(Record);

Record record_of(const RankProgress& progress) {
  const Instruction& at = progress.instruction;
  return {.nanoseconds = monotonic_nanoseconds(),
          .step = static_cast<std::int32_t>(progress.step),
          .phase = static_cast<std::uint8_t>(progress.phase),
          .instruction = static_cast<std::uint8_t>(at.kind),
          .op = static_cast<std::uint8_t>(at.op.kind),
          .stage = static_cast<std::int32_t>(at.op.stage.value()),
          .micro_batch = static_cast<std::int32_t>(at.op.micro_batch.value()),
          .replica = static_cast<std::int16_t>(at.op.replica.value()),
          .peer = static_cast<std::int16_t>(at.peer.value()),
          .group = static_cast<std::int32_t>(at.group.value())};
}

bool makes_sense(const Record& record) {
  return record.phase <= static_cast<std::uint8_t>(RankProgress::Phase::Ending) && record.op < kOpKinds &&
         record.instruction <= static_cast<std::uint8_t>(InstructionKind::DropWeights) && record.step >= 0 &&
         record.stage >= 0 && record.micro_batch >= 0 && record.replica >= 0 && record.peer >= 0 && record.group >= 0;
}

FlightEvent event_of(const Record& record) {
  Instruction at{.kind = static_cast<InstructionKind>(record.instruction)};
  at.op.kind = static_cast<OpKind>(record.op);
  at.op.stage = StageId(record.stage);
  at.op.replica = ReplicaId(record.replica);
  at.op.micro_batch = MicroBatchId(record.micro_batch);
  at.peer = WorkerId(record.peer);
  at.group = ParameterGroupId(record.group);
  return {record.nanoseconds, {static_cast<RankProgress::Phase>(record.phase), record.step, at}};
}

thread_local FlightRecorder* current_recorder = nullptr;

}  // namespace

/// As it lies in the file.
struct FlightRecorder::File {
  Header header;
  std::array<std::byte, kHeaderBytes - sizeof(Header)> unused;
  std::array<Record, kFlightEvents> records;
};

FlightRecorder::FlightRecorder(const std::string& path, int rank) {
  static_assert(sizeof(File) == kFileBytes);
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  const int refusal = file.get() < 0 ? errno : ::posix_fallocate(file.get(), 0, kFileBytes);
  if (refusal != 0) throw Error(fmt::format("{}: cannot be written ({})", path, system_message(refusal)));
  void* memory = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) check_system(-1, "map " + path);
  file_ = static_cast<File*>(memory);
  file_->header = Header{};
  file_->header.rank = rank;
}

FlightRecorder::~FlightRecorder() { ::munmap(file_, kFileBytes); }

/// Who reads the file of a process that was killed sees an event only once it is whole.
void FlightRecorder::note(const RankProgress& progress) {
  const std::atomic_ref<std::uint64_t> count(file_->header.count);
  const std::uint64_t index = count.load(std::memory_order_relaxed);
  file_->records[index % kFlightEvents] = record_of(progress);
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
    throw ConfigError(fmt::format("{}: is no flight record of this version", path));
  }
  std::vector<FlightEvent> events;
  const std::uint64_t first = header.count - std::min<std::uint64_t>(header.count, kFlightEvents);
  for (std::uint64_t index = first; index < header.count; ++index) {
    Record record;
    std::memcpy(&record, bytes.data() + kHeaderBytes + index % kFlightEvents * sizeof(Record), sizeof record);
    if (makes_sense(record)) events.push_back(event_of(record));
  }
  return events;
}

void record_flight_on(FlightRecorder* recorder) { current_recorder = recorder; }

void record_flight(const RankProgress& progress) {
  if (current_recorder != nullptr) current_recorder->note(progress);
}

}  // namespace chimera
