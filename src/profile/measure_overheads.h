#pragma once

// Measures the parts of a step besides layers and messages, for `chimera profile`: the update of the optimizer, the
// executor's work per op, and the collective that ends a step. All functions are collective: every rank calls them in
// the same order (lockstep.h). If they have an argument `seconds`, they repeat the measurement for about so long. The
// results are fields of MachineProfile (plan/machine.h).

#include <ATen/ATen.h>

#include "model/stage.h"
#include "profile/lockstep.h"
#include "transport/forwarding_transport.h"

namespace chimera {

/// A stage with almost no work, to measure overheads: multiplies a tensor [1, 1, kHidden] by a parameter. The last
/// stage returns the sum of the product as its loss.
class TrivialStage final : public Stage {
 public:
  static constexpr std::int64_t kHidden = 8;

  /// `first`: whether it is the first stage, which creates its own input. `last`: whether it returns a loss [].
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

/// A transport for a pipeline that consists only of the members of a group. It forwards all calls to a borrowed
/// transport, but its all_sum() covers only these members.
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

/// Returns the number of elements of all parameters.
[[nodiscard]] inline std::int64_t num_elements(const Stage& stage) {
  std::int64_t count = 0;
  for (const Parameter& parameter : stage.parameters()) count += parameter.value.numel();
  return count;
}

/// Returns the seconds per parameter of an optimizer step (gradient norm, clipping, AdamW, zeroing of gradients), after
/// ranks 0 and 1 (`pair`) have all-reduced the gradients. The result is the mean, over the computing ranks, of their
/// medians. `threads` is as in seconds_of() (lockstep.h).
[[nodiscard]] double measure_optimizer(Lockstep& ranks, ParameterGroupId pair, Stage& stage, std::int64_t threads,
                                       double seconds);

/// Returns the CPU seconds that executor and transport add to each op. Ranks 0 and 1 (`pair`) run a pipeline of
/// TrivialStages; the result is the larger of their medians.
[[nodiscard]] double measure_op_overhead(Lockstep& ranks, ParameterGroupId pair, double seconds);

/// Returns the median seconds of 100 calls of all_sum() with as many numbers as at the end of a small step; valid only
/// on rank 0.
[[nodiscard]] double measure_step_overhead(Lockstep& ranks);

}  // namespace chimera
