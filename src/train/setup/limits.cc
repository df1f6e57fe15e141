#include "train/setup/limits.h"

#include <fmt/format.h>

#include "core/cores.h"
#include "core/error.h"

namespace chimera {
namespace {

constexpr std::int64_t kMostElements = 100'000'000'000;  // of one message: far beyond any machine

}  // namespace

void require_fitting_batch(const ModelConfig& model, std::int64_t sequence, std::int64_t micro_batch_size) {
  if (sequence > model.positions) {
    throw ConfigError(fmt::format("--sequence {} is longer than the {} positions of model {}", sequence,
                                  model.positions, model.name));
  }
  require_no_sliding(model, sequence);
  if (micro_batch_size > kMostElements / sequence / model.hidden) {
    throw ConfigError(
        fmt::format("--micro-batch-size {} times sequence {} times hidden {} is more than any machine holds",
                    micro_batch_size, sequence, model.hidden));
  }
}

void require_memory_for(const ModelConfig& model, const std::string& what, double bytes) {
  const double available = available_memory_bytes();
  if (bytes <= available) return;
  constexpr double kGiB = 1 << 30;
  throw ConfigError(
      fmt::format("model {}: {} need {:.1f} GiB, this machine (or its control group) has {:.1f}; use a smaller model",
                  model.name, what, bytes / kGiB, available / kGiB));
}

}  // namespace chimera
