#pragma once

// Overheads of a step besides layers and messages: the update of the optimizer, the executor's work per op, and the
// collective that ends a step. All functions are collective.

#include <ATen/ATen.h>
#include <cstdint>

#include "model/stage.h"
#include "profile/lockstep.h"
#include "transport/forwarding_transport.h"

namespace chimera {

/// Multiplies [1, 1, kHidden] by a parameter, so that overheads dominate; the last stage sums.
class TrivialStage final : public Stage {
 public:
  static constexpr std::int64_t kHidden = 8;

  /// `first` creates its own input; `last` returns a loss [].
  TrivialStage(bool first, bool last) : Stage({{"scale", at::ones({kHidden})}}), last_(last) {
    if (first) embedded_ = at::ones({1, 1, kHidden});
  }
  at::Tensor forward(const at::Tensor& input, const MicroBatch& /*batch*/) override {
    const at::Tensor hidden = (embedded_.defined() ? embedded_ : input) * parameters().front().value;
    return last_ ? hidden.sum() : hidden;
  }

 private:
  bool last_;
  at::Tensor embedded_;
};

/// Borrowed transport. Its all_sum() covers only the members of a group, its only users.
class SubgroupTransport final : public ForwardingTransport {
 public:
  SubgroupTransport(Transport& ranks, ParameterGroupId members) : ForwardingTransport(ranks), members_(members) {}

  void all_sum(std::span<double> values) override {
    const auto count = static_cast<std::int64_t>(values.size());
    (void)start_all_reduce(members_, at::from_blob(values.data(), {count}, at::kDouble))->wait();
  }
  std::vector<double> sum_to_host(const at::Tensor& values, const std::function<void()>& before_wait) override {
    return Transport::sum_to_host(values, before_wait);  // by all_sum()
  }

 private:
  ParameterGroupId members_;
};

/// Returns seconds per parameter of an optimizer step (gradient norm, clipping, AdamW, zeroing) on gradients that ranks
/// 0 and 1 (`pair`) have just all-reduced: the computing ranks' mean of medians.
[[nodiscard]] double measure_optimizer(Lockstep& ranks, ParameterGroupId pair, Stage& stage, std::int64_t threads,
                                       double seconds);

/// Returns CPU seconds that executor and transport add to an op, from a pipeline of ranks 0 and 1 (`pair`): the larger
/// median of both.
[[nodiscard]] double measure_op_overhead(Lockstep& ranks, ParameterGroupId pair, double seconds);

/// Returns the median of the all_sum() that ends a step; valid on rank 0.
[[nodiscard]] double measure_step_overhead(Lockstep& ranks);

}  // namespace chimera
