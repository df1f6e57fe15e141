#pragma once

// Deals the samples of a step to micro-batches if their work differs, as with documents of unequal length. First, the
// samples are divided into micro-batches of even work. This depends only on the samples and the micro-batch size, so it
// is equal for all schedules and numbers of ranks. Then the micro-batches are permuted over the *places* of the
// schedule, its micro-batches in data order (run_shape.h), so that the step is fast (simulate/permute.h). Neither
// programs nor messages change. All ranks compute the same result, without a message.

#include <cstdint>
#include <vector>

#include "engine/run_shape.h"

namespace chimera {

/// Which sample is in which micro-batch, and where each micro-batch runs. *Dealt* samples are numbered micro-batch by
/// micro-batch.
struct DealtStep {
  std::vector<std::int64_t> sample_of = {};       // [dealt sample]: its index in the mini-batch; empty: the same
  std::vector<std::int64_t> micro_batch_at = {};  // [place]: number of the micro-batch that runs there; empty: in order

  /// Returns the number of the first dealt sample at a place; dropout masks depend on it. `first` is
  /// RunShape::first_sample() of the place, the result if nothing is permuted. `size` is the number of samples of an
  /// op.
  [[nodiscard]] std::int64_t first_dealt(std::int64_t first, std::int64_t size) const {
    return micro_batch_at.empty() ? first : micro_batch_at[static_cast<std::size_t>(first / size)] * size;
  }
  /// Returns the index in the mini-batch of dealt sample `dealt`.
  [[nodiscard]] std::int64_t sample(std::int64_t dealt) const {
    return sample_of.empty() ? dealt : sample_of[static_cast<std::size_t>(dealt)];
  }
};

/// Returns DealtStep::micro_batch_at for a fast step; empty if all micro-batches have equal work. `work` is
/// [micro-batch of the step], in any unit.
[[nodiscard]] std::vector<std::int64_t> fast_places(const RunShape& run, std::vector<double> work);

/// Deals the samples of a step. `work` is [sample of the step], in any unit. `permutes`: whether micro-batches may
/// change places; with --reduction canonical they may not, because places decide the order of sums. Everything stays in
/// order if all samples have equal work, or in an asynchronous schedule. Deterministic.
[[nodiscard]] DealtStep deal_step(const RunShape& run, const std::vector<double>& work, bool permutes);

}  // namespace chimera
