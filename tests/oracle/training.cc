#include "oracle/training.h"

#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace oracle {
namespace {

/// Linear up to the peak, then half a cosine down to a tenth of it. `step` counts from 1.
double rate_of(const Recipe& recipe, std::int64_t step) {
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  if (step <= recipe.warmup) return recipe.learning_rate * number(step) / number(recipe.warmup);
  const double way = number(step - 1 - recipe.warmup) / number(recipe.steps - recipe.warmup);
  return recipe.learning_rate * (0.1 + 0.9 * (1 + std::cos(3.14159265358979323846 * way)) / 2);
}

/// Matrices decay, vectors do not.
torch::optim::AdamW make_optimizer(const Recipe& recipe, const Weights& weights) {
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const auto& [name, weight] : weights) (weight.dim() == 2 ? matrices : vectors).push_back(weight);
  const auto options = [&](double decay) {
    auto made = std::make_unique<torch::optim::AdamWOptions>();
    made->weight_decay(decay);
    return made;
  };
  return torch::optim::AdamW(
      std::vector<torch::optim::OptimizerParamGroup>{{matrices, options(recipe.weight_decay)}, {vectors, options(0)}});
}

double norm_of_gradients(const Weights& weights) {
  double squares = 0;
  for (const auto& [name, weight] : weights) squares += weight.grad().square().sum().item<double>();
  return std::sqrt(squares);
}

/// The mean over at most four mini-batches of the validation part, at least one.
double validate(const Recipe& recipe, const Weights& weights) {
  const std::string part = validation_part(recipe.text);
  const Family family = recipe.architecture.family;
  const std::int64_t whole = epoch_size(family, part, recipe.sequence) / recipe.samples;
  const std::int64_t batches = std::min<std::int64_t>(4, std::max<std::int64_t>(1, whole));
  double sum = 0;
  for (std::int64_t b = 0; b < batches; ++b) {
    const Batch batch = read_batch(family, part, recipe.sequence, recipe.seed, b * recipe.samples, recipe.samples);
    sum += mean_loss(recipe.architecture, weights, batch).item<double>();
  }
  return sum / static_cast<double>(batches);
}

}  // namespace

Course train(const Recipe& recipe) {
  Course course;
  course.weights = initial_weights(recipe.architecture, recipe.seed);
  torch::optim::AdamW optimizer = make_optimizer(recipe, course.weights);
  const std::string part = training_part(recipe.text);
  for (std::int64_t step = 1; step <= recipe.steps; ++step) {
    const Batch batch = read_batch(recipe.architecture.family, part, recipe.sequence, recipe.seed,
                                   (step - 1) * recipe.samples, recipe.samples);
    optimizer.zero_grad();
    const at::Tensor loss = mean_loss(recipe.architecture, course.weights, batch);
    loss.backward();
    const double norm = norm_of_gradients(course.weights);
    if (norm > recipe.clip) {
      for (auto& [name, weight] : course.weights) weight.mutable_grad().mul_(recipe.clip / norm);
    }
    for (auto& group : optimizer.param_groups()) group.options().set_lr(rate_of(recipe, step));
    optimizer.step();
    course.losses.push_back(loss.item<double>());
    course.gradient_norms.push_back(norm);
    course.learning_rates.push_back(rate_of(recipe, step));
    course.validation_losses.push_back(validate(recipe, course.weights));
  }
  return course;
}

}  // namespace oracle
