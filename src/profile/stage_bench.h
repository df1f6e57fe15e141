#pragma once
// The ops of one kind of layer, as the executor runs them, by themselves.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "data/samples.h"
#include "model/linear.h"
#include "model/stage.h"
#include "plan/machine.h"

namespace chimera {

/// What a stage with exactly these layers is run on.
struct BenchedLayers {
  ModelConfig model;  // its layers of this kind: one embedding, one head, a few blocks
  LayerKind kind = LayerKind::Block;
  std::int64_t sequence = 128;
  at::ScalarType compute = at::kFloat;
};

/// A stage of one kind of layer. One micro-batch of every size is always under way, so that a forward's memory is not
/// what the last backward has just left warm.
class StageBench {
 public:
  explicit StageBench(BenchedLayers layers);

  /// Runs F of a new micro-batch of that size, then I and W of the one before it; then a recomputed micro-batch: F
  /// without a graph, F, I and W. Returns the seconds of one layer, as seconds_of() counts them.
  LayerTime run(std::int64_t micro_batch_size, std::int64_t threads);

  [[nodiscard]] Stage& stage() { return *stage_; }
  [[nodiscard]] std::int64_t layers() const { return num_layers_; }

 private:
  struct Flight {  // of a micro-batch between F and W
    at::Tensor input;
    at::Tensor output;
    WeightGradients::Pointer weight_gradients;
  };
  struct Size {
    at::Tensor states;    // what arrives, and what goes back, [b, L, H]
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

  BenchedLayers layers_;
  std::int64_t num_layers_;
  std::vector<std::uint8_t> text_;
  std::unique_ptr<Samples> samples_;
  std::unique_ptr<Stage> stage_;
  std::map<std::int64_t, Size> sizes_;
};

}  // namespace chimera
