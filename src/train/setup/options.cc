#include "train/setup/options.h"

#include <array>
#include <charconv>

#include "core/cgroup.h"
#include "core/printable.h"
#include "core/reject.h"

namespace chimera {

SaveInterval parse_save_interval(const std::string& flag, const std::string& text) {
  struct Unit {
    std::string_view name;
    double seconds;  // 0: steps
  };
  constexpr std::array<Unit, 4> kUnits = {{{"", 0}, {"s", 1}, {"min", 60}, {"h", 3600}}};
  constexpr std::int64_t kMax = 1'000'000'000;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // Whatever follows the digits is the unit; without one, the number counts steps.
  const std::string_view name(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const auto unit = std::ranges::find(kUnits, name, &Unit::name);
  if (error != std::errc() || unit == kUnits.end() || number < 1 || number > kMax)
    reject("{} '{}': must be steps, such as 100, or a time: 30s, 10min, 2h", flag, text);
  if (unit->seconds == 0) return {.steps = number, .seconds = 0};
  return {.steps = 0, .seconds = static_cast<double>(number) * unit->seconds};
}

double parse_deviations(const std::string& flag, const std::string& text) {
  constexpr std::string_view kUnit = "sigma";
  constexpr double kMax = 1e6;
  const bool has_unit = text.size() > kUnit.size() && text.ends_with(kUnit);
  const auto number =
      parse_number<double>(std::string_view(text).substr(0, text.size() - (has_unit ? kUnit.size() : 0)));
  if (!number || !(*number > 0 && *number <= kMax))
    reject("{} '{}': must be deviations above 0, such as 5sigma", flag, text);
  return *number;
}

void require_fitting_batch(const ModelConfig& model, std::int64_t sequence, std::int64_t micro_batch_size) {
  constexpr std::int64_t kMaxElements = 100'000'000'000;  // Of a message
  if (sequence > model.positions)
    reject("--sequence {} is longer than the {} positions of model {}", sequence, model.positions, model.name);
  require_within_window(model, sequence);
  // The product is bounded before it is computed, because it could overflow.
  if (micro_batch_size > kMaxElements / sequence / model.hidden) {
    reject("--micro-batch-size {} times sequence {} times hidden {} is more than any machine holds", micro_batch_size,
           sequence, model.hidden);
  }
}

void choose_usual_rates(TrainOptions& options) {
  // The usual rate for training a trained model further (BERT, section A.3: 2e-5 to 5e-5).
  constexpr double kTunedPeak = 5e-5;
  LearningRate& rate = options.updates.learning_rate;
  if (options.updates.usual_peak && !options.model.from.empty()) rate.peak = kTunedPeak;
  if (!options.updates.usual_warmup) return;
  // A twentieth of the steps, but at least one step must be left after the warm-up and before the cooldown.
  const std::int64_t most = options.updates.steps - std::max<std::int64_t>(rate.cooldown.value_or(1), 1);
  rate.warmup =
      std::max<std::int64_t>(std::min(std::clamp<std::int64_t>(options.updates.steps / 20, 4, 2000), most), 0);
}

void require_memory_for(const ModelConfig& model, const std::string& what, double bytes) {
  const double available = available_memory_bytes();
  if (bytes <= available) return;
  reject("model {}: {} need {}, this machine (or its control group) has {}; use a smaller model", model.name, what,
         bytes_text(bytes), bytes_text(available));
}

}  // namespace chimera
