#include "engine/optimizer.h"

#include <ATen/ATen.h>
#include <cmath>
#include <optional>

#include "core/mapped.h"
#include "runtime/step_reduction.h"

namespace chimera {
namespace {

/// Parameters with the same weight decay, and their state.
struct Group {
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<double> is_part;  // 1 if the parameter is a part (Parameter::whole_elements), else 0
  double weight_decay = 0;
  std::vector<at::Tensor> means = {};    // AdamW and LAMB only, as `squares`
  std::vector<at::Tensor> squares = {};  // running means of the squared gradients
  std::vector<at::Tensor> steps = {};    // AdamW only
};

std::vector<Group> groups_of(const std::vector<Parameter>& parameters, const OptimizerOptions& options) {
  // The fused kernel takes one weight decay for a list of tensors, so parameters with and without decay are apart.
  std::vector<Group> groups(2);
  groups[0].weight_decay = options.weight_decay;
  for (const Parameter& parameter : parameters) {
    Group& group = groups[has_decay(options.decayed, parameter.name, parameter.value.dim()) ? 0 : 1];
    group.names.push_back(parameter.name);
    group.parameters.push_back(parameter.value);
    group.gradients.push_back(parameter.value.grad());
    group.is_part.push_back(parameter.whole_elements > 0 ? 1 : 0);
  }
  std::erase_if(groups, [](const Group& group) { return group.parameters.empty(); });
  return groups;
}

constexpr const char* kFirstMoment = "first_moment";
constexpr const char* kSecondMoment = "second_moment";

/// State of AdamW and LAMB: running means of the gradients and of their squares.
class MomentOptimizer : public Optimizer {
 public:
  MomentOptimizer(std::vector<Group> groups, const OptimizerOptions& options)
      : options_(options), groups_(std::move(groups)) {
    for (Group& group : groups_)
      for (auto* moments : {&group.means, &group.squares})
        *moments = mapped(group.parameters, [](const at::Tensor& each) { return at::zeros_like(each); });
  }

  [[nodiscard]] std::vector<OptimizerTensor> state() const override {
    std::vector<OptimizerTensor> tensors;
    for (const Group& group : groups_) {
      for (std::size_t i = 0; i < group.means.size(); ++i) {
        tensors.push_back({group.names[i], kFirstMoment, group.means[i]});
        tensors.push_back({group.names[i], kSecondMoment, group.squares[i]});
      }
    }
    return tensors;
  }

 protected:
  OptimizerOptions options_;
  std::vector<Group> groups_;
};

class AdamW final : public MomentOptimizer {
 public:
  /// ATen's kernel counts the steps of each parameter in a tensor of its own.
  AdamW(std::vector<Group> groups, const OptimizerOptions& options) : MomentOptimizer(std::move(groups), options) {
    const auto zero = [](const at::Tensor& parameter) { return at::zeros({}, parameter.options().dtype(at::kFloat)); };
    for (Group& group : groups_) group.steps = mapped(group.parameters, zero);
  }

  void step(double learning_rate, double gradient_factor) override {
    const at::NoGradGuard no_grad;
    for (Group& group : groups_) {
      // Clipping costs no pass over the gradients: the fused kernel divides while it reads them.
      const auto divisor = scale(group, gradient_factor);
      // The kernel reads the number of the current step, from 1, for the bias corrections.
      at::_foreach_add_(group.steps, 1);
      at::_fused_adamw_(group.parameters, group.gradients, group.means, group.squares, {}, group.steps, learning_rate,
                        options_.beta1, options_.beta2, group.weight_decay, options_.epsilon, false, false, divisor);
    }
  }

  void set_steps(std::int64_t steps) override {
    for (Group& group : groups_)
      for (at::Tensor& count : group.steps) count.fill_(steps);
  }

 private:
  /// Multiplies the gradients, or returns the kernel's divisor, which must be float32.
  static std::optional<at::Tensor> scale(Group& group, double factor) {
    if (factor == 1) return std::nullopt;
    const at::Tensor& first = group.gradients.front();
    if (first.scalar_type() == at::kFloat) return at::scalar_tensor(1 / factor, first.options());
    at::_foreach_mul_(group.gradients, factor);
    return std::nullopt;
  }
};

/// Norms in float64 in a fixed order, so that all ranks with a tensor take the same step.
class Lamb final : public MomentOptimizer {
 public:
  Lamb(std::vector<Group> groups, const OptimizerOptions& options, TensorGroup* tensor)
      : MomentOptimizer(std::move(groups), options), tensor_(tensor) {}

  void step(double learning_rate, double gradient_factor) override {
    const at::NoGradGuard no_grad;
    ++steps_;
    for (Group& group : groups_) {
      for (std::size_t i = 0; i < group.means.size(); ++i) {
        // After the means are updated, the gradient's memory holds the update, so LAMB needs no memory of its own.
        at::Tensor& gradient = group.gradients[i];
        if (gradient_factor != 1) gradient.mul_(gradient_factor);
        group.means[i].mul_(options_.beta1).add_(gradient, 1 - options_.beta1);
        group.squares[i].mul_(options_.beta2).addcmul_(gradient, gradient, 1 - options_.beta2);
        make_update(group, i);
      }
      const at::Tensor ratios = trust_ratios(group);
      for (std::size_t i = 0; i < group.means.size(); ++i) {
        at::Tensor& parameter = group.parameters[i];
        const at::Tensor& update = group.gradients[i];
        // On a device, the ratio stays there: item() would wait for it, once per parameter.
        const at::Tensor ratio = ratios[static_cast<std::int64_t>(i)];
        if (parameter.is_cpu())
          parameter.add_(update, -learning_rate * ratio.item<double>());
        else
          parameter.addcmul_(update, ratio.to(parameter.scalar_type()), -learning_rate);
      }
    }
  }

  void set_steps(std::int64_t steps) override { steps_ = steps; }

 private:
  /// Returns the trust ratios [parameters] for the updates in the gradients' memory.
  [[nodiscard]] at::Tensor trust_ratios(const Group& group) const {
    at::Tensor squares = at::stack({sums_of_squares(group.parameters), sums_of_squares(group.gradients)});
    if (tensor_ != nullptr) {
      // Squares of parts add up over the T ranks; a parameter that is whole on each of them counts once.
      const at::Tensor is_part = on_device(group.is_part, squares.device());
      const at::Tensor parts = squares * is_part;
      tensor_->sum(parts);
      squares = squares * (1 - is_part) + parts;
    }
    const at::Tensor norms = squares.sqrt_();
    // Norm of the parameter over norm of the update.
    return (norms[0] / norms[1]).masked_fill_((norms == 0).any(0), 1);
  }

  /// Computes AdamW's direction including decay (algorithm 2 of the paper), in the gradient's memory.
  void make_update(Group& group, std::size_t i) const {
    at::Tensor& update = group.gradients[i];
    const double steps = static_cast<double>(steps_);
    // mean / (1 - beta1^t) / (sqrt(squares / (1 - beta2^t)) + epsilon), in place from the denominator on.
    update.copy_(group.squares[i]).div_(1 - std::pow(options_.beta2, steps)).sqrt_().add_(options_.epsilon);
    update.mul_(1 - std::pow(options_.beta1, steps));
    at::div_out(update, group.means[i], update);
    if (group.weight_decay != 0) update.add_(group.parameters[i], group.weight_decay);
  }

  TensorGroup* tensor_;
  std::int64_t steps_ = 0;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(std::vector<Group> groups) : groups_(std::move(groups)) {}

  void step(double learning_rate, double gradient_factor) override {
    const at::NoGradGuard no_grad;
    for (Group& group : groups_) {
      for (std::size_t i = 0; i < group.parameters.size(); ++i) {
        at::Tensor& parameter = group.parameters[i];
        // Decoupled decay as in AdamW, not an addition to the gradient.
        if (group.weight_decay != 0) parameter.mul_(1 - learning_rate * group.weight_decay);
        parameter.add_(group.gradients[i], -learning_rate * gradient_factor);
      }
    }
  }

  [[nodiscard]] std::vector<OptimizerTensor> state() const override { return {}; }
  void set_steps(std::int64_t /*steps*/) override {}

 private:
  std::vector<Group> groups_;
};

}  // namespace

double clip_factor(double norm, double clip) { return clip > 0 && norm > clip ? clip / norm : 1; }

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const std::vector<Parameter>& parameters,
                                          TensorGroup* tensor) {
  if (options.kind == OptimizerKind::Muon) return make_muon(options, parameters, tensor);
  auto groups = groups_of(parameters, options);
  if (options.kind == OptimizerKind::Sgd) return std::make_unique<Sgd>(std::move(groups));
  if (options.kind == OptimizerKind::Lamb) return std::make_unique<Lamb>(std::move(groups), options, tensor);
  return std::make_unique<AdamW>(std::move(groups), options);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const std::vector<ParameterGroup*>& trained,
                                          TensorGroup* tensor) {
  std::vector<Parameter> parameters;
  for (const ParameterGroup* group : trained)
    parameters.insert(parameters.end(), group->parameters().begin(), group->parameters().end());
  return make_optimizer(options, parameters, tensor);
}

}  // namespace chimera
