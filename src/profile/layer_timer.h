#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "data/samples.h"
#include "model/linear.h"
#include "model/make_stage.h"
#include "plan/machine.h"

// Times the ops of a kind of layer, as the executor calls them: forward, input gradient, weight gradient, and the
// same for a recomputed micro-batch. The profiler (profiler.h) runs one timer per layer on every computing rank at
// once.

namespace chimera {

struct TimedLayers {
  ModelConfig model;  // measured: one embedding, one head, or a few blocks
  LayerKind kind = LayerKind::Block;
  std::int64_t sequence = 128;
  at::ScalarType compute = at::kFloat;
};

/// A micro-batch of each size stays in flight, so that forwards do not reuse warm memory of the last backward.
class LayerTimer {
 public:
  explicit LayerTimer(TimedLayers layers);

  /// Runs F of a new micro-batch and I and W of the previous; then F without a graph, F, I and W of a recomputed
  /// micro-batch. Returns seconds_of() per layer.
  LayerTime run(std::int64_t micro_batch_size, std::int64_t threads);

  [[nodiscard]] Stage& stage() { return *stage_; }
  [[nodiscard]] std::int64_t layers() const { return num_layers_; }

 private:
  struct Flight {  // micro-batch between F and W
    at::Tensor input;
    at::Tensor output;
    WeightGradients::Pointer weight_gradients;
  };
  struct Size {
    at::Tensor states;    // input and gradient source, [b, L, H]
    at::Tensor gradient;  // undefined for the head
    std::optional<Flight> under_way;
    std::int64_t step = 0;
  };
  struct Backward {
    double input_seconds = 0;
    double weight_seconds = 0;
  };

  Size make_size(std::int64_t micro_batch_size) const;
  Flight forward(Size& size, std::int64_t micro_batch_size);
  static Backward backward(const Size& size, Flight flight, std::int64_t threads);
  double run_recomputed(Size& size, std::int64_t micro_batch_size, std::int64_t threads);
  MicroBatch load(std::int64_t step, std::int64_t micro_batch_size) const;

  TimedLayers layers_;
  std::int64_t num_layers_;
  std::vector<std::uint8_t> text_;
  std::unique_ptr<Samples> samples_;
  std::unique_ptr<Stage> stage_;
  std::map<std::int64_t, Size> sizes_;
};

}  // namespace chimera
