#include "measuring/device_difference.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "train/loop/loader.h"

namespace chimera {
namespace {

constexpr double kSmallGradient = 0.01;  // relative to the largest; gradients of some biases are only rounding errors

struct LayerRun {
  std::string name;
  at::Tensor input;  // Undefined for the embedding
  at::Tensor output;
  at::Tensor device_input;
  at::Tensor device_output;
};

std::string layer_name(std::size_t layer, std::size_t layers) {
  if (layer == 0) return "embedding";
  return layer + 1 == layers ? "head" : fmt::format("block {}", layer - 1);
}

double largest_element(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.to(at::kDouble).abs().max().item<double>();
}

DeviceDifference difference_of(std::string name, const at::Tensor& expected, const at::Tensor& found) {
  const at::Tensor left = expected.detach().to(at::kDouble);
  const at::Tensor right = found.detach().cpu().to(at::kDouble);
  const at::Tensor gap = at::where(left == right, at::zeros_like(left), (left - right).abs());
  const double largest = largest_element(gap);
  const bool is_number = largest == largest;
  return {std::move(name), is_number ? largest : std::numeric_limits<double>::infinity(), largest_element(left)};
}

void raise_scales(std::span<DeviceDifference> gradients) {
  double largest = 0;
  for (const DeviceDifference& each : gradients) largest = std::max(largest, each.scale);
  for (DeviceDifference& each : gradients) each.scale = std::max(each.scale, kSmallGradient * largest);
}

at::Tensor leaf_on(const at::Tensor& tensor, at::ScalarType dtype, at::Device device) {
  return tensor.defined() ? tensor.detach().to(device, dtype).requires_grad_() : at::Tensor();
}

/// Returns the tensor in its own type, rounded to `dtype`.
at::Tensor rounded(const at::Tensor& tensor, at::ScalarType dtype) { return tensor.to(dtype).to(tensor.scalar_type()); }

void add_gradients(const LayerRun& run, Stage& on_cpu, Stage& on_device, std::vector<DeviceDifference>& to) {
  const std::size_t begin = to.size();
  const auto& parameters = on_cpu.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    to.push_back(difference_of(fmt::format("{}: gradient of {}", run.name, parameters[i].name),
                               parameters[i].value.grad(), on_device.parameters().at(i).value.grad()));
  }
  if (run.input.defined()) {
    to.push_back(difference_of(run.name + ": gradient of its input", run.input.grad(), run.device_input.grad()));
  }
  raise_scales(std::span(to).subspan(begin));
}

}  // namespace

std::vector<std::unique_ptr<Stage>> make_single_layers(const ModelConfig& config, at::ScalarType dtype,
                                                       std::uint64_t seed, at::Device device) {
  std::vector<StageLayers> layers = {{0, 0, /*embedding=*/true, /*head=*/false}};
  for (std::int64_t block = 0; block < config.layers; ++block) layers.push_back({block, block + 1});
  layers.push_back({config.layers, config.layers, /*embedding=*/false, /*head=*/true});
  std::vector<std::unique_ptr<Stage>> stages;
  for (const StageLayers& each : layers)
    stages.push_back(make_stage(config, each, dtype, initial_values_of(seed), {}, device));
  return stages;
}

std::vector<DeviceDifference> compare_layers(std::span<const std::unique_ptr<Stage>> on_cpu,
                                             std::span<const std::unique_ptr<Stage>> on_device, const MicroBatch& batch,
                                             at::ScalarType dtype, at::Device device) {
  if (on_cpu.size() != on_device.size()) throw std::logic_error("two models with different numbers of layers");
  const MicroBatch device_batch = chimera::on_device(batch, device);
  std::vector<LayerRun> runs;
  std::vector<DeviceDifference> found;
  at::Tensor hidden;
  for (std::size_t layer = 0; layer < on_cpu.size(); ++layer) {
    LayerRun run = {.name = layer_name(layer, on_cpu.size()),
                    .input = leaf_on(hidden, reference_type(dtype), at::kCPU)};
    run.device_input = leaf_on(hidden, dtype, device);
    run.output = on_cpu[layer]->forward(run.input, batch);
    run.device_output = on_device[layer]->forward(run.device_input, device_batch);
    found.push_back(difference_of(run.name + ": output", run.output, run.device_output));
    hidden = rounded(run.output, dtype);
    runs.push_back(std::move(run));
  }
  at::Tensor gradient;
  for (std::size_t layer = runs.size(); layer-- > 0;) {
    const LayerRun& run = runs[layer];
    torch::autograd::backward({run.output}, {gradient});
    torch::autograd::backward({run.device_output}, {gradient.defined() ? gradient.to(device, dtype) : at::Tensor()});
    add_gradients(run, *on_cpu[layer], *on_device[layer], found);
    gradient = run.input.defined() ? rounded(run.input.grad(), dtype) : at::Tensor();
  }
  return found;
}

at::ScalarType reference_type(at::ScalarType dtype) { return dtype == at::kBFloat16 ? at::kFloat : dtype; }

const DeviceDifference* first_different(std::span<const DeviceDifference> tensors, double tolerance) {
  const auto found =
      std::ranges::find_if(tensors, [&](const DeviceDifference& each) { return !(each.relative() <= tolerance); });
  return found == tensors.end() ? nullptr : &*found;
}

double rounding_tolerance(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return 1e-11;
    case at::kFloat: return 1e-4;
    default: return 0.04;  // bfloat16 rounds at 0.004
  }
}

}  // namespace chimera
