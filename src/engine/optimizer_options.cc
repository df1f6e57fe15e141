#include "engine/optimizer_options.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/value_text.h"

namespace chimera {
namespace {

double ratio(std::int64_t part, std::int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

double half_cosine(double q) { return 0.5 * (1 + std::cos(std::numbers::pi * q)); }

/// Returns the share of the way to the minimum that remains after share q.
double left_of(CooldownShape shape, double q) {
  switch (shape) {
    case CooldownShape::Linear: return 1 - q;
    case CooldownShape::Cosine: return half_cosine(q);
    case CooldownShape::Sqrt: return 1 - std::sqrt(q);
  }
  return 0;
}

/// Returns the number of steps after the one with the peak.
std::int64_t steps_after_peak(const LearningRate& rate, std::int64_t steps) {
  return steps - std::max<std::int64_t>(rate.warmup, 1);
}

std::int64_t decay_steps(const LearningRate& rate, std::int64_t steps) {
  const std::int64_t most = steps_after_peak(rate, steps);
  // A cooldown of the whole run also begins after a step with the peak.
  return rate.shape == LearningRateShape::Wsd ? std::min(rate.cooldown_steps(steps), most) : most;
}

/// Step 0, or the last one of the warm-up, has the peak. Counting the decay from there gives the peak to one step and
/// the minimum to the last.
double left_of(const LearningRate& rate, std::int64_t step, std::int64_t steps) {
  const std::int64_t decay = decay_steps(rate, steps);
  // The decay covers the last `decay` steps, and step steps - 1 - decay is the last with the peak. With 10 steps and a
  // cooldown of 4, step 5 has the peak, and steps 6 to 9 have done 1/4 to 4/4 of the way.
  const std::int64_t done = std::clamp<std::int64_t>(step - (steps - 1 - decay), 0, decay);
  const double q = decay == 0 ? 0 : ratio(done, decay);
  switch (rate.shape) {
    case LearningRateShape::Cosine: return half_cosine(q);
    case LearningRateShape::Linear: return 1 - q;
    case LearningRateShape::Constant: return 1;
    case LearningRateShape::Wsd: return left_of(rate.cooldown_shape, q);
  }
  return 0;
}

}  // namespace

double LearningRate::at(std::int64_t step, std::int64_t steps) const {
  // The first step already has a rate above 0, and the last of the warm-up has the peak.
  if (step < warmup) return peak * ratio(step + 1, warmup);
  const double floor = minimum.value_or(0.1 * peak);
  return floor + (peak - floor) * left_of(*this, step, steps);
}

std::int64_t LearningRate::cooldown_steps(std::int64_t steps) const {
  if (shape != LearningRateShape::Wsd) return 0;
  return cooldown.value_or(std::min(std::max<std::int64_t>(steps / 10, 1), steps_after_peak(*this, steps)));
}

std::string find_invalid_option(const LearningRate& rate, std::int64_t steps) {
  if (!(rate.peak > 0)) return "learning-rate must be above 0";
  if (rate.minimum && !(*rate.minimum >= 0 && *rate.minimum <= rate.peak))
    return fmt::format("min-learning-rate must be 0 to the learning rate, {:g}, not {:g}", rate.peak, *rate.minimum);
  if (rate.minimum && rate.shape == LearningRateShape::Constant)
    return "min-learning-rate has no effect on a constant learning rate; leave it out";
  if (rate.cooldown && rate.shape != LearningRateShape::Wsd) return "cooldown is for --learning-rate-shape wsd";
  if (rate.warmup > steps) {
    return fmt::format("warmup: {} steps are more than the run's {}; the learning rate would never reach its peak",
                       rate.warmup, steps);
  }
  if (rate.warmup == steps && rate.shape == LearningRateShape::Wsd && !rate.cooldown) {
    return fmt::format(
        "warmup: {} steps are the whole run, and leave none for the cooldown; give fewer, or --learning-rate-shape "
        "constant",
        rate.warmup);
  }
  // Only a cooldown that the user gave can be wrong; the default always fits.
  const std::int64_t cooldown = rate.cooldown_steps(steps);
  if (cooldown < 0) return fmt::format("cooldown must be at least 0, not {}", cooldown);
  if (cooldown > 0 && cooldown > steps - rate.warmup) {
    return fmt::format("cooldown: {} steps of it and {} of warm-up are more than the run's {}", cooldown, rate.warmup,
                       steps);
  }
  return "";
}

bool is_embedding(std::string_view name, std::int64_t dimensions) {
  // A norm inside BERT's embeddings has such a name too, but one dimension.
  const auto is_table = [](std::string_view part) { return part == "wte" || part == "wpe"; };
  const bool named = name.find("embed") != name.npos || std::ranges::any_of(split_at('.', name), is_table);
  return named && dimensions >= 2;
}

bool has_decay(DecayedWeights decayed, std::string_view name, std::int64_t dimensions) {
  switch (decayed) {
    case DecayedWeights::Matrices: return dimensions >= 2;
    case DecayedWeights::NoEmbeddings: return dimensions >= 2 && !is_embedding(name, dimensions);
    case DecayedWeights::All: return true;
  }
  return true;
}

std::string find_invalid_option(const OptimizerOptions& options) {
  for (const auto& [name, beta] : {std::pair("beta1", options.beta1), std::pair("beta2", options.beta2)})
    if (!(beta >= 0 && beta < 1)) return fmt::format("{} must be at least 0 and below 1, not {:g}", name, beta);
  const double momentum = options.muon.momentum;
  if (!(momentum >= 0 && momentum < 1))
    return fmt::format("momentum must be at least 0 and below 1, not {:g}", momentum);
  if (!(options.epsilon > 0)) return fmt::format("epsilon must be above 0, not {:g}", options.epsilon);
  return "";
}

}  // namespace chimera
