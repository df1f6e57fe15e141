#include "profile/layer_timer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "core/random.h"
#include "profile/lockstep.h"
#include "runtime/tracer.h"
#include "train/loop/loader.h"

namespace chimera {
namespace {

/// Several blocks, so that weights exceed the nearest cache as in training.
constexpr std::int64_t kMostBlocks = 4;

StageLayers stage_layers(LayerKind kind, std::int64_t blocks) {
  switch (kind) {
    case LayerKind::Embedding: return {0, 0, true, false};
    case LayerKind::Head: return {0, 0, false, true};
    case LayerKind::Block: return {0, blocks, false, false};
  }
  return {};
}

std::vector<std::uint8_t> random_text(std::size_t letters) {
  const CounterRandom random(1, "profile");
  std::vector<std::uint8_t> text(letters);
  for (std::size_t i = 0; i < letters; ++i) {
    const std::uint64_t letter = random.below(i, 32);
    text[i] = static_cast<std::uint8_t>(letter < 26 ? 'a' + letter : ' ');
  }
  return text;
}

}  // namespace

LayerTimer::LayerTimer(TimedLayers layers)
    : layers_(std::move(layers)),
      num_layers_(layers_.kind == LayerKind::Block ? std::min(layers_.model.layers, kMostBlocks) : 1),
      text_(random_text(static_cast<std::size_t>(256 * (layers_.sequence + 1)))) {
  layers_.model.tied = false;  // the same work, but without an owner of the matrix
  const auto kind = is_causal(layers_.model.family) ? SampleKind::NextToken : SampleKind::MaskedPairs;
  samples_ = std::make_unique<Samples>(text_in_memory(text_, "random text"), SampleOptions{kind, layers_.sequence, 1});
  stage_ = make_stage(layers_.model, stage_layers(layers_.kind, num_layers_), layers_.compute, initial_values_of(1));
}

LayerTimer::Size LayerTimer::make_size(std::int64_t micro_batch_size) const {
  Size size;
  const at::Tensor states = at::randn({micro_batch_size, layers_.sequence, layers_.model.hidden}).to(layers_.compute);
  if (layers_.kind != LayerKind::Embedding) size.states = states;
  if (layers_.kind != LayerKind::Head) size.gradient = states * 1e-3;
  return size;
}

/// Causal blocks need nothing, BERT's a mask.
MicroBatch LayerTimer::load(std::int64_t step, std::int64_t micro_batch_size) const {
  if (layers_.kind == LayerKind::Block && is_causal(layers_.model.family)) return {};
  return make_micro_batch(*samples_, layers_.model.family, {step, 0, micro_batch_size, micro_batch_size});
}

LayerTimer::Flight LayerTimer::forward(Size& size, std::int64_t micro_batch_size) {
  Flight flight;
  if (size.states.defined()) flight.input = size.states.detach().requires_grad_(true);
  flight.weight_gradients = c10::make_intrusive<WeightGradients>();
  const WeightGradients::Scope scope(flight.weight_gradients);
  flight.output = stage_->forward(flight.input, load(size.step++, micro_batch_size));
  return flight;
}

LayerTimer::Backward LayerTimer::backward(const Size& size, Flight flight, std::int64_t threads) {
  const Stopwatch input_watch;
  flight.weight_gradients->defer();
  torch::autograd::backward({std::exchange(flight.output, {})}, {size.gradient});
  const double input_seconds = seconds_of(input_watch.elapsed(), threads);

  const Stopwatch weight_watch;
  flight.weight_gradients->run();
  return {input_seconds, seconds_of(weight_watch.elapsed(), threads)};
}

double LayerTimer::run_recomputed(Size& size, std::int64_t micro_batch_size, std::int64_t threads) {
  const Stopwatch watch;
  {
    const at::NoGradGuard no_graph;
    (void)forward(size, micro_batch_size);
  }
  Flight again = forward(size, micro_batch_size);
  const double forwards = seconds_of(watch.elapsed(), threads);
  const Backward back = backward(size, std::move(again), threads);
  return forwards + back.input_seconds + back.weight_seconds;
}

LayerTime LayerTimer::run(std::int64_t micro_batch_size, std::int64_t threads) {
  auto found = sizes_.find(micro_batch_size);
  if (found == sizes_.end()) found = sizes_.emplace(micro_batch_size, make_size(micro_batch_size)).first;
  Size& size = found->second;
  if (!size.under_way) size.under_way = forward(size, micro_batch_size);

  const Stopwatch watch;
  Flight next = forward(size, micro_batch_size);
  const double forward_seconds = seconds_of(watch.elapsed(), threads);
  const Backward back = backward(size, std::exchange(*size.under_way, std::move(next)), threads);
  const double whole = forward_seconds + back.input_seconds + back.weight_seconds;
  const double recompute = std::max(0.0, run_recomputed(size, micro_batch_size, threads) - whole);

  const auto layers = static_cast<double>(num_layers_);
  return {micro_batch_size, forward_seconds / layers, back.input_seconds / layers, back.weight_seconds / layers,
          recompute / layers};
}

}  // namespace chimera
