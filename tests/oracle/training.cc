#include "oracle/training.h"

#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

namespace oracle {
namespace {

/// Linear up to the peak, then half a cosine down to the minimum in the last step. `step` counts from 1.
double rate_of(const Recipe& recipe, std::int64_t step) {
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  if (step <= recipe.warmup) return recipe.learning_rate * number(step) / number(recipe.warmup);
  const std::int64_t top = std::max<std::int64_t>(recipe.warmup, 1);
  const double way = number(step - top) / number(std::max<std::int64_t>(recipe.steps - top, 1));
  return recipe.minimum + (recipe.learning_rate - recipe.minimum) * (1 + std::cos(3.14159265358979323846 * way)) / 2;
}

bool has_decay(Decay decay, const std::string& name, const at::Tensor& weight) {
  static const std::set<std::string> kEmbeddings = {
      "wte.weight", "wpe.weight", "bert.embeddings.word_embeddings.weight",
      "bert.embeddings.position_embeddings.weight", "bert.embeddings.token_type_embeddings.weight"};
  if (decay == Decay::All) return true;
  return weight.dim() == 2 && (decay == Decay::Matrices || !kEmbeddings.contains(name));
}

torch::optim::AdamW make_optimizer(const Recipe& recipe, const Weights& weights) {
  std::vector<at::Tensor> decaying;
  std::vector<at::Tensor> others;
  for (const auto& [name, weight] : weights)
    (has_decay(recipe.decay, name, weight) ? decaying : others).push_back(weight);
  const auto options = [&](double weight_decay) {
    auto made = std::make_unique<torch::optim::AdamWOptions>();
    made->weight_decay(weight_decay).betas({recipe.beta1, recipe.beta2}).eps(recipe.epsilon);
    return made;
  };
  std::vector<torch::optim::OptimizerParamGroup> groups = {{decaying, options(recipe.weight_decay)}};
  if (!others.empty()) groups.emplace_back(others, options(0));
  return torch::optim::AdamW(groups);
}

/// LAMB (You et al., ICLR'20, algorithm 2, with phi the identity), one tensor at a time.
class Lamb {
 public:
  Lamb(const Recipe& recipe, const Weights& weights) : recipe_(recipe) {
    for (const auto& [name, weight] : weights) m_[name] = v_[name] = at::zeros_like(weight);
  }

  void step(Weights& weights, double rate) {
    const at::NoGradGuard no_grad;
    ++t_;
    for (auto& [name, weight] : weights) {
      const at::Tensor& gradient = weight.grad();
      m_[name] = recipe_.beta1 * m_[name] + (1 - recipe_.beta1) * gradient;
      v_[name] = recipe_.beta2 * v_[name] + (1 - recipe_.beta2) * gradient.square();
      const at::Tensor m_hat = m_[name] / (1 - std::pow(recipe_.beta1, t_));
      const at::Tensor v_hat = v_[name] / (1 - std::pow(recipe_.beta2, t_));
      at::Tensor update = m_hat / (v_hat.sqrt() + recipe_.epsilon);
      if (has_decay(recipe_.decay, name, weight)) update = update + recipe_.weight_decay * weight;
      const double weight_norm = weight.norm().item<double>();
      const double update_norm = update.norm().item<double>();
      const double trust = weight_norm == 0 || update_norm == 0 ? 1 : weight_norm / update_norm;
      weight -= rate * trust * update;
    }
  }

 private:
  const Recipe& recipe_;
  Weights m_;
  Weights v_;
  int t_ = 0;
};

double norm_of_gradients(const Weights& weights) {
  double squares = 0;
  for (const auto& [name, weight] : weights) squares += weight.grad().square().sum().item<double>();
  return std::sqrt(squares);
}

/// The mean over at most four mini-batches of the validation part; over all of its samples if they fill none.
double validate(const Recipe& recipe, const Weights& weights) {
  const std::string part = validation_part(recipe.text);
  const Family family = recipe.architecture.family;
  const std::int64_t all = epoch_size(family, part, recipe.sequence);
  const std::int64_t batches = std::min<std::int64_t>(4, std::max<std::int64_t>(1, all / recipe.samples));
  const std::int64_t samples = std::min(all, recipe.samples);
  double sum = 0;
  for (std::int64_t b = 0; b < batches; ++b) {
    const Batch batch = read_batch(family, part, recipe.sequence, recipe.seed, b * samples, samples);
    sum += mean_loss(recipe.architecture, weights, batch).item<double>();
  }
  return sum / static_cast<double>(batches);
}

}  // namespace

Course train(const Recipe& recipe) {
  Course course;
  course.weights = initial_weights(recipe.architecture, recipe.seed);
  torch::optim::AdamW adamw = make_optimizer(recipe, course.weights);
  Lamb lamb(recipe, course.weights);
  const std::string part = training_part(recipe.text);
  for (std::int64_t step = 1; step <= recipe.steps; ++step) {
    const Batch batch = read_batch(recipe.architecture.family, part, recipe.sequence, recipe.seed,
                                   (step - 1) * recipe.samples, recipe.samples);
    adamw.zero_grad();
    const at::Tensor loss = mean_loss(recipe.architecture, course.weights, batch);
    loss.backward();
    const double norm = norm_of_gradients(course.weights);
    if (norm > recipe.clip) {
      for (auto& [name, weight] : course.weights) weight.mutable_grad().mul_(recipe.clip / norm);
    }
    if (recipe.optimizer == Optimizer::Lamb) {
      lamb.step(course.weights, rate_of(recipe, step));
    } else {
      for (auto& group : adamw.param_groups()) group.options().set_lr(rate_of(recipe, step));
      adamw.step();
    }
    course.losses.push_back(loss.item<double>());
    course.gradient_norms.push_back(norm);
    course.learning_rates.push_back(rate_of(recipe, step));
    course.validation_losses.push_back(validate(recipe, course.weights));
  }
  return course;
}

}  // namespace oracle
