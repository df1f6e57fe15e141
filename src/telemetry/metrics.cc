#include "telemetry/metrics.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/console.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"

namespace chimera {
namespace {

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.17g}", value) : "null"; }

bool is_locked(const FileDescriptor& file, int kind) {
  return ::flock(file.get(), kind | LOCK_NB) != 0 && errno == EWOULDBLOCK;  // other errors: no locks there
}

[[noreturn]] void refuse_locked(const std::string& path) {
  reject("--metrics {}: another run is writing this file; give another one", path);
}

/// Locks the file; truncates a regular file to `bytes`.
AppendFile open_for_lines(const std::string& path, std::size_t bytes) {
  make_parent_folders(path);
  // Not truncated by open(): first the lock must show that no other run is writing.
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666));
  const auto size = static_cast<off_t>(bytes);
  // A pipe or a device cannot be cut, and two runs may share it.
  const bool is_kept = file.get() >= 0 && !is_file(path);
  if (file.get() >= 0 && !is_kept && is_locked(file, LOCK_EX)) refuse_locked(path);
  if (file.get() < 0 || (!is_kept && ::ftruncate(file.get(), size) != 0))
    reject("--metrics {}: cannot be written ({})", path, system_message(errno));
  return {std::move(file), "--metrics " + path, size};
}

}  // namespace

double LossWatch::deviation() const { return std::max(std::sqrt(variance), kMinDeviation * std::abs(mean)); }

double LossWatch::deviations_above(double loss) const {
  // The first losses fall so fast that their deviation says nothing.
  if (losses < kWarmUp || loss <= expected()) return 0;
  return (loss - expected()) / deviation();
}

void LossWatch::note(double loss) {
  const double above = loss - mean;
  if (losses > 0) {  // the first loss has no preceding mean
    // The first values weigh the same, which makes the mean right before it becomes exponential.
    const double weight = std::max(1 / static_cast<double>(losses), kDistanceWeight);
    const double difference = above - distance;
    distance += weight * difference;
    // West's update: with the weight w, the variance of old and new values together, around the new mean.
    variance = (1 - weight) * (variance + weight * difference * difference);
  }
  ++losses;
  mean += std::max(1 / static_cast<double>(losses), kWeight) * above;
}

AppendFile::AppendFile(FileDescriptor file, std::string name, off_t size)
    : file_(std::move(file)), name_(std::move(name)), size_(size) {}

void AppendFile::add(const std::string& record) {
  waiting_ += record;
  const int cause = write_waiting();
  if (cause != 0 && !has_failed_) {
    messages().write(fmt::format("chimera: {}: {}; training continues, and writes the missing lines when it can\n",
                                 name_, system_message(cause)));
  }
  if (cause == 0 && has_failed_)
    messages().write(fmt::format("chimera: {}: can be written again and has all lines\n", name_));
  has_failed_ = cause != 0;
}

void AppendFile::finish() {
  const int cause = write_waiting();
  if (cause != 0) throw Error(fmt::format("{}: its last lines are missing: {}", name_, system_message(cause)));
}

int AppendFile::write_waiting() {
  if (waiting_.empty()) return 0;
  // All waiting records in one call: a reader never sees half a record, unless the disk is full.
  const auto written = ::write(file_.get(), waiting_.data(), waiting_.size());
  // A short write to a regular file means a full disk. EPIPE means a pipe without a reader, whose records are dropped.
  const int cause = written < 0 ? errno : ENOSPC;
  if (written != static_cast<ssize_t>(waiting_.size()) && cause != EPIPE) {
    // Removes partially written data.
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), size_);
    return cause;
  }
  size_ += static_cast<off_t>(waiting_.size());
  waiting_.clear();
  return 0;
}

std::string to_json_line(const StepMetrics& metrics) {
  std::string line = fmt::format(R"({{"step": {}, "tokens": {})", metrics.step, metrics.tokens);
  visit_measurements(metrics, [&](const char* name, const auto& value) {
    if (const std::optional known = value) line += fmt::format(R"(, "{}": {})", name, number(*known));
  });
  if (metrics.time > 0) line += fmt::format(R"(, "time": {:.3f})", metrics.time);
  if (metrics.seconds_left) line += fmt::format(R"(, "eta_seconds": {})", number(*metrics.seconds_left));
  if (metrics.is_skipped) line += R"(, "skipped": true)";
  if (metrics.parameters_hash) line += fmt::format(R"(, "parameters_hash": "{}")", *metrics.parameters_hash);
  if (metrics.workers) line += fmt::format(R"(, "workers": {})", *metrics.workers);
  if (!metrics.factors.empty()) line += fmt::format(R"(, "factors": [{:.3g}])", fmt::join(metrics.factors, ", "));
  for (std::size_t i = 0; i < metrics.delays.size(); ++i)
    line += fmt::format("{}[{:.3g}]", i == 0 ? ", \"delays\": [" : ", ", fmt::join(metrics.delays[i], ", "));
  if (!metrics.delays.empty()) line += "]";
  if (metrics.order) line += fmt::format(R"(, "order": {})", json_text(nlohmann::json(*metrics.order)));
  if (metrics.sample) line += fmt::format(R"(, "sample": {})", json_text(nlohmann::json(*metrics.sample)));
  return line + "}\n";
}

std::string read_kept_lines(const std::string& path, std::int64_t last_step) {
  std::string kept;
  if (last_step == 0 || !is_file(path)) return kept;
  std::ifstream file(path, std::ios::binary);
  // A last line without an end was cut by a crash.
  for (std::string line; std::getline(file, line) && !file.eof(); kept += line + "\n") {
    const auto step = try_json(line);
    // Steps ascend, so the first one beyond the checkpoint ends the lines to keep.
    if (!step.is_object() || !step.contains("step") || step["step"] > last_step) break;
  }
  return kept;
}

void require_unlocked_lines(const std::string& path) {
  if (!is_file(path)) return;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() >= 0 && is_locked(file, LOCK_SH)) refuse_locked(path);
}

void require_continuable_lines(const std::string& path, std::int64_t last_step,
                               const std::optional<nlohmann::json>& loss) {
  require_unlocked_lines(path);
  std::error_code none;
  if (!is_file(path) || std::filesystem::is_empty(path, none)) return;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const auto metrics = try_json(line);
    if (!metrics.is_object() || !metrics.contains("loss") || !metrics.contains("step")) break;
    // The loss at the checkpoint's step identifies the run: it differs in every other run.
    if (!loss || (metrics["step"] == last_step && metrics["loss"] == *loss)) return;
  }
  reject("--metrics {}: exists already and is not of this run; give another file, or --overwrite", path);
}

MetricsFile::MetricsFile(const std::string& path, std::int64_t last_step)
    : lines_(open_for_lines(path, read_kept_lines(path, last_step).size())) {}

}  // namespace chimera
