#include "train/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace chimera {

std::string to_json_line(const StepMetrics& metrics) {
  std::string line =
      fmt::format(R"({{"step": {}, "loss": {:.17g}, "grad_norm": {:.17g}, "learning_rate": {:.17g}, "tokens": {}, )"
                  R"("step_seconds": {:.17g}, "tokens_per_second": {:.17g}, "peak_memory_bytes": {:.0f})",
                  metrics.step, metrics.loss, metrics.gradient_norm, metrics.learning_rate, metrics.tokens,
                  metrics.step_seconds, metrics.tokens_per_second, metrics.peak_memory_bytes);
  if (metrics.utilization) line += fmt::format(R"(, "mfu": {:.17g})", *metrics.utilization);
  if (metrics.seconds_left) line += fmt::format(R"(, "eta_seconds": {:.17g})", *metrics.seconds_left);
  if (metrics.validation_loss) line += fmt::format(R"(, "validation_loss": {:.17g})", *metrics.validation_loss);
  if (metrics.parameters_hash) line += fmt::format(R"(, "parameters_hash": "{}")", *metrics.parameters_hash);
  if (metrics.sample) line += fmt::format(R"(, "sample": {})", nlohmann::json(*metrics.sample).dump());
  return line + "}\n";
}

MetricsFile::MetricsFile(const std::string& path)
    : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)), path_(path) {
  if (file_.get() < 0)
    throw ConfigError(fmt::format("--metrics {}: cannot be written ({})", path, system_message(errno)));
}

void MetricsFile::write(const StepMetrics& metrics) {
  const std::string line = to_json_line(metrics);
  const auto written = ::write(file_.get(), line.data(), line.size());
  const int cause = written < 0 ? errno : ENOSPC;
  if (written == static_cast<ssize_t>(line.size())) {
    size_ += written;
  } else if (cause != EPIPE) {
    // Takes back the part of this line for which there was room.
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), size_);
    throw Error(fmt::format("--metrics {}: {}", path_, system_message(cause)));
  }
}

}  // namespace chimera
