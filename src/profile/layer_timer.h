#pragma once

// Times the ops of one kind of layer as the executor runs them: forward (F), input gradient (I) and weight gradient
// (W) of a micro-batch, and the second forward of recomputation. `chimera profile` (profiler.h) constructs a timer for
// each kind of layer (embedding, block, head) on every rank, and the computing ranks run them at the same time.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "bench/random_letters.h"
#include "data/samples.h"
#include "model/linear.h"
#include "model/make_stage.h"
#include "model/tensor_parallel.h"
#include "plan/machine.h"
#include "profile/lockstep.h"
#include "runtime/tracer.h"
#include "train/loop/loader.h"
#include "transport/stream.h"

namespace chimera {

/// The layers of a LayerTimer.
struct TimedLayers {
  ModelConfig model;  // its embedding, its head, or a few of its blocks are measured
  LayerKind kind = LayerKind::Block;
  std::int64_t sequence = 128;          // tokens
  at::ScalarType compute = at::kFloat;  // type in which the layers compute
  // Ranks that share the layers (tensor parallelism); all of them call run() at the same time. Null: whole layers
  TensorGroup* tensor = nullptr;
  at::Device device = at::kCPU;
};

/// Forwards the calls of a group that it borrows, and measures their time. A TensorGroup (model/tensor_parallel.h) is
/// the ranks that share a layer; its calls add or exchange tensors within an op.
class TimedGroup final : public TensorGroup {
 public:
  explicit TimedGroup(TensorGroup& group) : TensorGroup(group.place(), group.cuts_tokens()), group_(group) {}

  void sum(const at::Tensor& values) override {
    const Call call(*this, values);
    group_.sum(values);
  }
  std::vector<at::Tensor> exchange(const at::Tensor& values) override {
    const Call call(*this, values);
    return group_.exchange(values);
  }
  /// Returns the time of all calls so far.
  [[nodiscard]] const Duration& elapsed() const { return elapsed_; }
  /// Returns the mean wall-clock seconds of a call by bytes of its tensor, since the last take_means().
  std::map<double, double> take_means() {
    std::map<double, double> means;
    for (const auto& [bytes, calls] : calls_) means[bytes] = calls.first / static_cast<double>(calls.second);
    calls_.clear();
    return means;
  }

 private:
  struct Call {
    Call(TimedGroup& of, const at::Tensor& values) : group(of), bytes(static_cast<double>(values.nbytes())) {}
    Call& operator=(Call&&) = delete;
    ~Call() {
      const Duration taken = watch.elapsed();
      group.elapsed_.wall_seconds += taken.wall_seconds;
      group.elapsed_.cpu_seconds += taken.cpu_seconds;
      auto& [seconds, count] = group.calls_[bytes];
      seconds += taken.wall_seconds;
      ++count;
    }
    TimedGroup& group;
    double bytes;
    Stopwatch watch;
  };

  TensorGroup& group_;
  Duration elapsed_ = {};
  std::map<double, std::pair<double, std::int64_t>> calls_;  // by bytes: seconds and number
};

/// Makes a stage with only this kind of layer and runs its ops on random data. For each micro-batch size, the forward
/// of the next micro-batch runs before the backward of the previous one, as in a pipeline. Otherwise a forward would
/// reuse memory that the last backward has just freed, which is still in the cache.
class LayerTimer {
 public:
  explicit LayerTimer(TimedLayers layers)
      : layers_(std::move(layers)),
        num_layers_(layers_.kind == LayerKind::Block ? std::min(layers_.model.layers, kMaxBlocks) : 1) {
    const std::string letters = random_letters(static_cast<std::uint64_t>(256 * (layers_.sequence + 1)), "profile");
    text_.assign(letters.begin(), letters.end());
    layers_.model.tied = false;  // the same work, but without an owner of the matrix
    const auto kind = is_causal(layers_.model.family) ? SampleKind::NextToken : SampleKind::MaskedPairs;
    samples_ =
        std::make_unique<Samples>(text_in_memory(text_, "random text"), SampleOptions{kind, layers_.sequence, 1});
    if (layers_.tensor != nullptr) group_ = std::make_unique<TimedGroup>(*layers_.tensor);
    stage_ = make_stage(layers_.model, stage_layers(layers_.kind, num_layers_), layers_.compute, initial_values_of(1),
                        /*tied=*/{}, layers_.device, group_.get());
  }

  /// Measures once: F of a new micro-batch, then I and W of the previous one, then the forward without autograd that
  /// recomputation adds; the difference of times with and without recomputation would have twice the noise. Returns
  /// seconds per layer: CPU time or wall-clock time (seconds_of() in lockstep.h, for `threads` threads per rank),
  /// without the calls of the group.
  LayerTime run(std::int64_t micro_batch_size, std::int64_t threads) {
    auto found = sizes_.find(micro_batch_size);
    if (found == sizes_.end()) found = sizes_.emplace(micro_batch_size, make_size(micro_batch_size)).first;
    Size& size = found->second;
    if (!size.under_way) size.under_way = forward(size, micro_batch_size);

    const OwnWatch watch(*this);
    Flight next = forward(size, micro_batch_size);
    const double forward_seconds = watch.seconds(threads);
    LayerTime time = backward(size, std::exchange(*size.under_way, std::move(next)), threads);
    time.micro_batch_size = micro_batch_size;
    time.forward = forward_seconds;
    time.recompute = seconds_without_graph(size, micro_batch_size, threads);
    for (const auto& number : kLayerTimeNumbers) time.*number.value /= static_cast<double>(num_layers_);
    return time;
  }

  /// Returns the stage with the layers, which the timer owns.
  [[nodiscard]] Stage& stage() { return *stage_; }
  /// Returns the group of the layers; null if they are whole.
  [[nodiscard]] TimedGroup* group() const { return group_.get(); }
  /// Returns how many layers the stage has.
  [[nodiscard]] std::int64_t layers() const { return num_layers_; }

 private:
  /// Several blocks, so that weights exceed the nearest cache as in training.
  static constexpr std::int64_t kMaxBlocks = 4;

  static StageLayers stage_layers(LayerKind kind, std::int64_t blocks) {
    if (kind == LayerKind::Block) return {0, blocks, false, false};
    return {0, 0, kind == LayerKind::Embedding, kind == LayerKind::Head};
  }

  /// Measures this rank's own work, without the calls of the group.
  class OwnWatch {
   public:
    explicit OwnWatch(const LayerTimer& timer)
        : timer_(timer), in_group_(timer.in_group()), begin_(timer.layers_.device) {}
    [[nodiscard]] double seconds(std::int64_t threads) const {
      if (const at::Device device = timer_.layers_.device; !device.is_cpu()) {
        const TimeMark end(device);
        await_device(device);
        return end.seconds_since(begin_);
      }
      const Duration all = watch_.elapsed();
      const Duration waits = timer_.in_group();
      return seconds_of({all.wall_seconds - waits.wall_seconds + in_group_.wall_seconds,
                         all.cpu_seconds - waits.cpu_seconds + in_group_.cpu_seconds},
                        threads);
    }

   private:
    const LayerTimer& timer_;
    Duration in_group_;
    TimeMark begin_;
    Stopwatch watch_;
  };
  [[nodiscard]] Duration in_group() const { return group_ ? group_->elapsed() : Duration{}; }

  struct Flight {  // a micro-batch between its forward and its weight gradient
    at::Tensor input;
    at::Tensor output;
    WeightGradients::Pointer weight_gradients;
  };
  struct Size {
    at::Tensor states;                // input of a forward, [samples, tokens, hidden size]; undefined for the embedding
    at::Tensor gradient;              // gradient of the output, of the same sizes; undefined for the head
    std::optional<Flight> under_way;  // the previous micro-batch of this size
    std::int64_t step = 0;
  };

  Size make_size(std::int64_t micro_batch_size) const {
    Size size;
    const std::int64_t tokens = layers_.sequence / (group_ && group_->cuts_tokens() ? group_->place().ranks : 1);
    const at::Tensor states =
        at::randn({micro_batch_size, tokens, layers_.model.hidden}).to(layers_.device, layers_.compute);
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
  [[nodiscard]] LayerTime backward(const Size& size, Flight flight, std::int64_t threads) const {
    const OwnWatch input_watch(*this);
    flight.weight_gradients->defer();
    torch::autograd::backward({std::exchange(flight.output, {})}, {size.gradient});
    const double input_seconds = input_watch.seconds(threads);

    const OwnWatch weight_watch(*this);
    flight.weight_gradients->run();
    return {.input_gradient = input_seconds, .weight_gradient = weight_watch.seconds(threads)};
  }
  /// Returns the seconds of a forward without autograd.
  double seconds_without_graph(Size& size, std::int64_t micro_batch_size, std::int64_t threads) {
    const OwnWatch watch(*this);
    const at::NoGradGuard no_graph;
    (void)forward(size, micro_batch_size);
    return watch.seconds(threads);
  }
  /// Returns the tokens of a micro-batch; nothing for blocks of GPT-2 and Llama, which do not need any.
  MicroBatch load(std::int64_t step, std::int64_t micro_batch_size) const {
    if (layers_.kind == LayerKind::Block && is_causal(layers_.model.family)) return {};
    return on_device(make_micro_batch(*samples_, layers_.model.family, {step, 0, micro_batch_size, micro_batch_size}),
                     layers_.device);
  }

  TimedLayers layers_;
  std::int64_t num_layers_;
  std::vector<std::uint8_t> text_;
  std::unique_ptr<Samples> samples_;
  std::unique_ptr<TimedGroup> group_;
  std::unique_ptr<Stage> stage_;
  std::map<std::int64_t, Size> sizes_;
};

}  // namespace chimera
