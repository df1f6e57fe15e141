#include "engine/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace chimera {
namespace {

/// Parameters that share one weight decay.
struct Group {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  double weight_decay = 0;
};

std::vector<Group> groups_of(const std::vector<Parameter>& parameters, double weight_decay) {
  std::vector<Group> groups(2);
  groups[0].weight_decay = weight_decay;
  for (const Parameter& parameter : parameters) {
    Group& group = groups[parameter.value.dim() >= 2 ? 0 : 1];
    group.parameters.push_back(parameter.value);
    group.gradients.push_back(parameter.value.grad());
  }
  std::erase_if(groups, [](const Group& group) { return group.parameters.empty(); });
  return groups;
}

class AdamW final : public Optimizer {
 public:
  explicit AdamW(std::vector<Group> groups) {
    for (Group& group : groups) {
      State state{std::move(group), {}, {}, {}};
      for (const at::Tensor& parameter : state.group.parameters) {
        state.means.push_back(at::zeros_like(parameter));
        state.squares.push_back(at::zeros_like(parameter));
        state.steps.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
      }
      states_.push_back(std::move(state));
    }
  }

  void step(double learning_rate, double gradient_factor) override {
    const at::NoGradGuard no_grad;
    for (State& state : states_) {
      const auto divisor = scale(state.group, gradient_factor);
      for (at::Tensor& count : state.steps) count.add_(1);
      at::_fused_adamw_(state.group.parameters, state.group.gradients, state.means, state.squares, {}, state.steps,
                        learning_rate, 0.9, 0.999, state.group.weight_decay, 1e-8, false, false, divisor);
    }
  }

  [[nodiscard]] std::int64_t state_bytes() const override {
    std::int64_t bytes = 0;
    for (const State& state : states_) {
      for (const auto* tensors : {&state.means, &state.squares, &state.steps}) {
        for (const at::Tensor& tensor : *tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
      }
    }
    return bytes;
  }

 private:
  struct State {
    Group group;
    std::vector<at::Tensor> means;
    std::vector<at::Tensor> squares;
    std::vector<at::Tensor> steps;  // the kernel wants a tensor for each parameter
  };
  /// Multiplies the gradients, or returns what the kernel, which wants it in float32, shall divide them by.
  static std::optional<at::Tensor> scale(Group& group, double factor) {
    if (factor == 1) return std::nullopt;
    const at::Tensor& first = group.gradients.front();
    if (first.scalar_type() == at::kFloat) return at::scalar_tensor(1 / factor, first.options());
    at::_foreach_mul_(group.gradients, factor);
    return std::nullopt;
  }

  std::vector<State> states_;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(std::vector<Group> groups) : groups_(std::move(groups)) {}

  void step(double learning_rate, double gradient_factor) override {
    const at::NoGradGuard no_grad;
    for (Group& group : groups_) {
      for (std::size_t i = 0; i < group.parameters.size(); ++i) {
        at::Tensor& parameter = group.parameters[i];
        if (group.weight_decay != 0) parameter.mul_(1 - learning_rate * group.weight_decay);
        parameter.add_(group.gradients[i], -learning_rate * gradient_factor);
      }
    }
  }

  [[nodiscard]] std::int64_t state_bytes() const override { return 0; }

 private:
  std::vector<Group> groups_;
};

}  // namespace

double LearningRate::at(std::int64_t step, std::int64_t steps) const {
  const auto ratio = [](std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  if (step < warmup) return peak * ratio(step + 1, warmup);
  const std::int64_t decay_steps = std::max<std::int64_t>(steps - warmup, 1);
  const double progress = std::min(ratio(step - warmup, decay_steps), 1.0);
  constexpr double kFloor = 0.1;
  return peak * (kFloor + (1 - kFloor) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

double clip_factor(double norm, double clip) { return clip > 0 && norm > clip ? clip / norm : 1; }

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const std::vector<Parameter>& parameters) {
  auto groups = groups_of(parameters, options.weight_decay);
  if (options.kind == OptimizerKind::Sgd) return std::make_unique<Sgd>(std::move(groups));
  return std::make_unique<AdamW>(std::move(groups));
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          const std::vector<ParameterGroup*>& trained) {
  std::vector<Parameter> parameters;
  for (const ParameterGroup* group : trained) {
    parameters.insert(parameters.end(), group->parameters().begin(), group->parameters().end());
  }
  return make_optimizer(options, parameters);
}

}  // namespace chimera
