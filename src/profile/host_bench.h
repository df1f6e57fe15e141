#pragma once

#include <ATen/ATen.h>
#include <cstdint>

#include "model/stage.h"
#include "profile/lockstep.h"
#include "transport/forwarding_transport.h"

// A stage that computes next to nothing, so that what is around it shows.

// A transport for some ranks among several, whose all_sum() covers these alone.

// What a step takes beside its layers and messages.

namespace chimera {

/// A product of hidden states [1, 1, kHidden] with one small parameter, and a sum where the loss is taken.
class TrivialStage final : public Stage {
 public:
  static constexpr std::int64_t kHidden = 8;

  /// `first` makes its own input; `last` returns a loss [].
  TrivialStage(bool first, bool last) : Stage({{"scale", at::ones({kHidden})}}), last_(last) {
    if (first) embedded_ = at::ones({1, 1, kHidden});
  }
  at::Tensor forward(const at::Tensor& input, const MicroBatch& /*batch*/) override {
    const at::Tensor hidden = (embedded_.defined() ? embedded_ : input) * parameters().front().value;
    return last_ ? hidden.sum() : hidden;
  }

 private:
  bool last_;
  at::Tensor embedded_;  // of the first stage
};

/// Borrows a transport of all ranks, of which the members of one of its groups alone use this.
class SubgroupTransport final : public ForwardingTransport {
 public:
  SubgroupTransport(Transport& ranks, ParameterGroupId members) : ForwardingTransport(ranks), members_(members) {}

  void all_sum(std::span<double> values) override {
    const auto count = static_cast<std::int64_t>(values.size());
    (void)start_all_reduce(members_, at::from_blob(values.data(), {count}, at::kDouble))->wait();
  }

 private:
  ParameterGroupId members_;
};

/// Seconds of a step of the optimizer for each parameter of the stage: the norm of the gradients, which ranks 0 and 1
/// (`pair`) have just summed, clipping, AdamW and zeroing them. The mean over computing ranks of their medians, in time
/// as seconds_of() counts it; all ranks call it.
[[nodiscard]] double measure_optimizer(Lockstep& ranks, ParameterGroupId pair, Stage& stage, std::int64_t threads,
                                       double seconds);

/// Seconds of CPU time that executor and transport add to an op: of a pipeline of two processes whose stages compute
/// next to nothing, what ops themselves take left out. `pair`: the group of ranks 0 and 1. The larger median of both;
/// all ranks call it.
[[nodiscard]] double measure_op_overhead(Lockstep& ranks, ParameterGroupId pair, double seconds);

/// Seconds of the sum over all ranks that ends a step: the median. All ranks call it; the result is rank 0's.
[[nodiscard]] double measure_step_overhead(Lockstep& ranks);

}  // namespace chimera
