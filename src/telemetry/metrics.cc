#include "telemetry/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace chimera {

namespace {

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.17g}", value) : "null"; }

}  // namespace

std::string to_json_line(const StepMetrics& metrics) {
  std::string line =
      fmt::format(R"({{"step": {}, "loss": {}, "grad_norm": {}, "learning_rate": {:.17g}, "tokens": {}, )"
                  R"("step_seconds": {:.17g}, "tokens_per_second": {:.17g}, "peak_memory_bytes": {:.0f})",
                  metrics.step, number(metrics.loss), number(metrics.gradient_norm), metrics.learning_rate,
                  metrics.tokens, metrics.step_seconds, metrics.tokens_per_second, metrics.peak_memory_bytes);
  if (metrics.is_skipped) line += R"(, "skipped": true)";
  if (metrics.utilization) line += fmt::format(R"(, "mfu": {:.17g})", *metrics.utilization);
  if (metrics.seconds_left) line += fmt::format(R"(, "eta_seconds": {:.17g})", *metrics.seconds_left);
  if (metrics.validation_loss) line += fmt::format(R"(, "validation_loss": {:.17g})", *metrics.validation_loss);
  if (metrics.parameters_hash) line += fmt::format(R"(, "parameters_hash": "{}")", *metrics.parameters_hash);
  if (metrics.sample) line += fmt::format(R"(, "sample": {})", nlohmann::json(*metrics.sample).dump());
  return line + "}\n";
}

namespace {

/// The file, open for more lines behind the first `bytes`.
FileDescriptor open_for_lines(const std::string& path, off_t bytes) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666));
  std::error_code none;
  const bool is_kept = file.get() >= 0 && !std::filesystem::is_regular_file(path, none);
  if (file.get() < 0 || (!is_kept && ::ftruncate(file.get(), bytes) != 0)) {
    throw ConfigError(fmt::format("--metrics {}: cannot be written ({})", path, system_message(errno)));
  }
  return file;
}

RecordFile lines_of(const std::string& path, off_t bytes) {
  return {open_for_lines(path, bytes), "--metrics " + path, bytes};
}

}  // namespace

std::string kept_lines(const std::string& path, std::int64_t last_step) {
  std::string kept;
  std::error_code none;
  if (last_step == 0 || !std::filesystem::is_regular_file(path, none)) return kept;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line) && !file.eof(); kept += line + "\n") {
    const auto step = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!step.is_object() || !step.contains("step") || step["step"] > last_step) break;
  }
  return kept;
}

MetricsFile::MetricsFile(const std::string& path, std::int64_t last_step)
    : lines_(lines_of(path, static_cast<off_t>(kept_lines(path, last_step).size()))) {}

}  // namespace chimera
