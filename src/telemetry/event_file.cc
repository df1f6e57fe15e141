#include "telemetry/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/host_name.h"
#include "core/reject.h"

namespace chimera {
namespace {

// A minimal Protocol Buffers encoder: no dependency for five fields.

// A message is a sequence of fields: a key (number of the field and WireType), then a value. Numbers of fields are
// those of event.proto and summary.proto of TensorFlow.
enum class WireType : std::uint8_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

/// Returns the number as bytes of this machine, which is little-endian as the format.
std::string little_endian(auto number) {
  static_assert(std::endian::native == std::endian::little);
  const auto bytes = std::bit_cast<std::array<char, sizeof number>>(number);
  return {bytes.begin(), bytes.end()};
}

void add_varint(std::string& out, std::uint64_t number) {
  // Seven bits a byte, low bits first; the high bit says that another byte follows.
  for (; number >= 0x80; number >>= 7U) out += static_cast<char>((number & 0x7FU) | 0x80U);
  out += static_cast<char>(number);
}

void add_key(std::string& out, int field, WireType type) {
  // The low three bits of a key are the type.
  add_varint(out, (static_cast<std::uint64_t>(field) << 3U) | static_cast<std::uint64_t>(type));
}

void add_bytes(std::string& out, int field, std::string_view bytes) {
  add_key(out, field, WireType::Bytes);
  add_varint(out, bytes.size());
  out += bytes;
}

/// Event.wall_time = 1 and Event.step = 2.
std::string event_at(double wall_time, std::int64_t step = 0) {
  std::string event;
  add_key(event, 1, WireType::Fixed64);
  event += little_endian(wall_time);
  // Zero is the default of the format, which encoders leave out.
  if (step == 0) return event;
  add_key(event, 2, WireType::Varint);
  add_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

/// Summary.value = 1, with Value.tag = 1 and Value.simple_value = 2.
void add_scalar(std::string& summary, std::string_view tag, double number) {
  std::string value;
  add_bytes(value, 1, tag);
  add_key(value, 2, WireType::Fixed32);
  value += little_endian(static_cast<float>(number));
  add_bytes(summary, 1, value);
}

std::string masked_checksum(std::string_view bytes) {
  const std::uint32_t sum = crc32c(bytes);
  // TensorFlow masks checksums, because a CRC of data that contain CRCs is weak.
  return little_endian(std::rotr(sum, 15) + 0xA282EAD8U);
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

constexpr const char* kFileName = "events.out.tfevents";

/// TensorBoard reads files in the order of their names, and a restart must come after what it drops.
AppendFile new_file(const std::string& folder) {
  std::error_code shows_below;
  std::filesystem::create_directories(folder, shows_below);
  const std::string path = fmt::format("{}/{}.{:.6f}.{}.{}", folder, kFileName, now(), host_name(), ::getpid());
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file.get() < 0) reject("--tensorboard {}: cannot be written ({})", folder, system_message(errno));
  return {std::move(file), "--tensorboard " + path};
}

}  // namespace

std::string event_record(std::string_view data) {
  const std::string length = little_endian(std::uint64_t{data.size()});
  return length + masked_checksum(length) + std::string(data) + masked_checksum(data);
}

std::string step_event(const StepMetrics& metrics, double wall_time) {
  std::string summary;
  visit_measurements(metrics, [&](const char* name, const auto& value) {
    if (const std::optional known = value) add_scalar(summary, name, *known);
  });
  std::string event = event_at(wall_time, metrics.step);
  add_bytes(event, 5, summary);  // Event.summary
  return event;
}

std::string restart_event(std::int64_t step, double wall_time) {
  std::string event = event_at(wall_time, step);
  add_bytes(event, 7, "\x08\x01");  // Event.session_log, with SessionLog.status = 1: START
  return event;
}

bool has_events(const std::string& folder) {
  std::error_code none;
  const auto is_event_file = [](const auto& file) { return file.path().filename().string().starts_with(kFileName); };
  return std::ranges::any_of(std::filesystem::directory_iterator(folder, none), is_event_file);
}

EventFile::EventFile(const std::string& folder, std::int64_t first_step) : records_(new_file(folder)) {
  // Readers expect the version as the first event.
  std::string version = event_at(now());
  add_bytes(version, 3, "brain.Event:2");  // Event.file_version
  records_.add(event_record(version));
  records_.add(event_record(restart_event(first_step, now())));
}

void EventFile::write(const StepMetrics& metrics) { records_.add(event_record(step_event(metrics, now()))); }

}  // namespace chimera
