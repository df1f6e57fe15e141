// A custom network trained by Chimera: it tells on which of three rings a point of the plane lies.
//
// Four stages on four threads; prints the schedule and the falling loss. docs/library.md explains it.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn.h>

#include <cstdio>

#include "engine/fit.h"
#include "render/text.h"
#include "simulate/simulate.h"

namespace nn = torch::nn;

/// A layer is a factory: each rank creates the layers of its own stages. Any module or function from tensor to tensor
/// works.
chimera::LayerFactory hidden_layer(std::int64_t inputs, std::int64_t outputs) {
  return [=] { return nn::Sequential(nn::Linear(inputs, outputs), nn::Tanh()); };
}

/// The sum of the losses and their number, for the mean over the step.
chimera::LossSum cross_entropy(const at::Tensor& output, const at::Tensor& target) {
  return {
      nn::functional::cross_entropy(output, target, nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum)),
      target.numel()};
}

/// Points [count, 2] around the origin and the ring [count] of each; depends only on the range.
chimera::Batch rings(const chimera::SampleRange& range) {
  const auto seed = static_cast<std::uint64_t>(range.step * 1'000'003 + range.first);
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor ring = at::randint(3, {range.count}, generator, at::kLong);
  const at::Tensor radius = ring + 0.6 + 0.1 * at::randn({range.count}, generator);
  const at::Tensor angle = 6.2832 * at::rand({range.count}, generator);
  return {at::stack({radius * angle.cos(), radius * angle.sin()}, 1), ring};
}

int main() {
  chimera::Model model;
  model.layers = {hidden_layer(2, 32), hidden_layer(32, 32), hidden_layer(32, 32), [] { return nn::Linear(32, 3); }};
  model.loss = {.sum = cross_entropy};
  chimera::FitOptions options;
  options.schedule = "chimera";
  options.shape = {.stages = 4, .micro_batches = 4};
  options.micro_batch_size = 16;
  options.steps = 200;
  options.learning_rate.peak = 0.01;
  try {
    const chimera::FitRun run = prepare_fit(model, rings, options);
    const auto timeline = simulate(run.schedule, chimera::CostModel::uniform(run.schedule, {}));
    std::printf("%s\n", to_text(run.schedule, timeline).c_str());
    const auto parameters = fit(run, [](const chimera::FitStep& step) {
      if (step.step % 50 == 0 || step.step == 1) std::printf("step %3ld  loss %.3f\n", step.step, step.loss);
    });
    std::printf("%zu parameters, the last one %s\n", parameters.size(), parameters.rbegin()->first.c_str());
  } catch (const chimera::Error& error) {
    std::fprintf(stderr, "rings: %s\n", error.what());
    return 1;
  }
}
