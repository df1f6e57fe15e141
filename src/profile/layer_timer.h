#pragma once

// Times the ops of one kind of layer, in the way in which the executor runs them: forward, input gradient and weight
// gradient of a micro-batch, and of a micro-batch with recomputation. `chimera profile` (profiler.h) constructs a timer
// for each kind of layer (embedding, block, head) on every rank, and the computing ranks run them at the same time.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/random_letters.h"
#include "data/samples.h"
#include "model/linear.h"
#include "model/make_stage.h"
#include "plan/machine.h"
#include "profile/lockstep.h"
#include "runtime/tracer.h"
#include "train/loop/loader.h"

namespace chimera {

/// What a LayerTimer measures.
struct TimedLayers {
  ModelConfig model;  // measured: one embedding, one head, or a few blocks
  LayerKind kind = LayerKind::Block;
  std::int64_t sequence = 128;
  at::ScalarType compute = at::kFloat;
};

/// Makes a stage with only this kind of layer and runs its ops on random data. For each micro-batch size, the forward
/// of the next micro-batch runs before the backward of the previous one, as in a pipeline. Otherwise a forward would
/// reuse memory that the last backward has just freed and that is still in the cache.
class LayerTimer {
 public:
  explicit LayerTimer(TimedLayers layers)
      : layers_(std::move(layers)),
        num_layers_(layers_.kind == LayerKind::Block ? std::min(layers_.model.layers, kMaxBlocks) : 1),
        text_(random_text(256 * (layers_.sequence + 1))) {
    layers_.model.tied = false;  // the same work, but without an owner of the matrix
    const auto kind = is_causal(layers_.model.family) ? SampleKind::NextToken : SampleKind::MaskedPairs;
    samples_ =
        std::make_unique<Samples>(text_in_memory(text_, "random text"), SampleOptions{kind, layers_.sequence, 1});
    stage_ = make_stage(layers_.model, stage_layers(layers_.kind, num_layers_), layers_.compute, initial_values_of(1));
  }

  /// Measures once: F of a new micro-batch, then I and W of the previous one. To measure recomputation, also runs a
  /// micro-batch with a forward without autograd, then F, I and W. Returns seconds per layer, by seconds_of()
  /// (lockstep.h), with `threads` threads per rank.
  LayerTime run(std::int64_t micro_batch_size, std::int64_t threads) {
    auto found = sizes_.find(micro_batch_size);
    if (found == sizes_.end()) found = sizes_.emplace(micro_batch_size, make_size(micro_batch_size)).first;
    Size& size = found->second;
    if (!size.under_way) size.under_way = forward(size, micro_batch_size);

    const Stopwatch watch;
    Flight next = forward(size, micro_batch_size);
    const double forward_seconds = seconds_of(watch.elapsed(), threads);
    LayerTime time = backward(size, std::exchange(*size.under_way, std::move(next)), threads);
    time.micro_batch_size = micro_batch_size;
    time.forward = forward_seconds;
    time.recompute = std::max(0.0, run_recomputed(size, micro_batch_size, threads) - time.whole());
    for (const auto& number : kLayerTimeNumbers) time.*number.value /= static_cast<double>(num_layers_);
    return time;
  }

  [[nodiscard]] Stage& stage() { return *stage_; }
  [[nodiscard]] std::int64_t layers() const { return num_layers_; }

 private:
  /// Several blocks, so that weights exceed the nearest cache as in training.
  static constexpr std::int64_t kMaxBlocks = 4;

  static StageLayers stage_layers(LayerKind kind, std::int64_t blocks) {
    if (kind == LayerKind::Block) return {0, blocks, false, false};
    return {0, 0, kind == LayerKind::Embedding, kind == LayerKind::Head};
  }

  static std::vector<std::uint8_t> random_text(std::int64_t letters) {
    const std::string text = random_letters(static_cast<std::uint64_t>(letters), "profile");
    return {text.begin(), text.end()};
  }

  struct Flight {  // a micro-batch between its F and its W
    at::Tensor input;
    at::Tensor output;
    WeightGradients::Pointer weight_gradients;
  };
  struct Size {
    at::Tensor states;                // input and gradient source, [b, L, H]
    at::Tensor gradient;              // undefined for the head
    std::optional<Flight> under_way;  // the previous micro-batch of this size
    std::int64_t step = 0;
  };

  Size make_size(std::int64_t micro_batch_size) const {
    Size size;
    const at::Tensor states = at::randn({micro_batch_size, layers_.sequence, layers_.model.hidden}).to(layers_.compute);
    if (layers_.kind != LayerKind::Embedding) size.states = states;
    if (layers_.kind != LayerKind::Head) size.gradient = states * 1e-3;
    return size;
  }
  Flight forward(Size& size, std::int64_t micro_batch_size) {
    Flight flight;
    if (size.states.defined()) flight.input = size.states.detach().requires_grad_(true);
    flight.weight_gradients = c10::make_intrusive<WeightGradients>();
    const WeightGradients::Scope scope(flight.weight_gradients);
    flight.output = stage_->forward(flight.input, load(size.step++, micro_batch_size));
    return flight;
  }
  /// Returns the seconds of I and W; all other fields are 0.
  static LayerTime backward(const Size& size, Flight flight, std::int64_t threads) {
    const Stopwatch input_watch;
    flight.weight_gradients->defer();
    torch::autograd::backward({std::exchange(flight.output, {})}, {size.gradient});
    const double input_seconds = seconds_of(input_watch.elapsed(), threads);

    const Stopwatch weight_watch;
    flight.weight_gradients->run();
    return {.input_gradient = input_seconds, .weight_gradient = seconds_of(weight_watch.elapsed(), threads)};
  }
  double run_recomputed(Size& size, std::int64_t micro_batch_size, std::int64_t threads) {
    const Stopwatch watch;
    {
      const at::NoGradGuard no_graph;
      (void)forward(size, micro_batch_size);
    }
    Flight again = forward(size, micro_batch_size);
    const double forwards = seconds_of(watch.elapsed(), threads);
    return forwards + backward(size, std::move(again), threads).whole();
  }
  /// Returns the tokens of a micro-batch; nothing for blocks of GPT-2 and Llama, which do not need any.
  MicroBatch load(std::int64_t step, std::int64_t micro_batch_size) const {
    if (layers_.kind == LayerKind::Block && is_causal(layers_.model.family)) return {};
    return make_micro_batch(*samples_, layers_.model.family, {step, 0, micro_batch_size, micro_batch_size});
  }

  TimedLayers layers_;
  std::int64_t num_layers_;
  std::vector<std::uint8_t> text_;
  std::unique_ptr<Samples> samples_;
  std::unique_ptr<Stage> stage_;
  std::map<std::int64_t, Size> sizes_;
};

}  // namespace chimera
