#pragma once

// Deals the samples of a step to micro-batches if their work differs, as with documents of unequal length. First, the
// samples are dealt to micro-batches of even work; this depends on the samples and the micro-batch size alone, so all
// layouts deal alike. Then the micro-batches are permuted over the places of the schedule (simulate/permute.h), which
// changes neither programs nor messages. All ranks compute the same result, without a message.

#include <cstdint>
#include <vector>

#include "engine/run_shape.h"

namespace chimera {

/// Where the samples of a step stand. Places are in data order (run_shape.h).
struct DealtStep {
  std::vector<std::int64_t> sample_of = {};       // [micro-batch of the data * its samples + row]; empty: in order
  std::vector<std::int64_t> micro_batch_at = {};  // [place]: micro-batch of the data; empty: in order

  /// Returns the number of the place's first sample among the dealt samples, which dropout masks depend on. `first` is
  /// RunShape::first_sample() of the place, and `size` the number of samples of an op.
  [[nodiscard]] std::int64_t first_dealt(std::int64_t first, std::int64_t size) const {
    return micro_batch_at.empty() ? first : micro_batch_at[static_cast<std::size_t>(first / size)] * size;
  }
  /// Returns the sample of the step that is dealt as number `dealt`.
  [[nodiscard]] std::int64_t sample(std::int64_t dealt) const {
    return sample_of.empty() ? dealt : sample_of[static_cast<std::size_t>(dealt)];
  }
};

/// Returns DealtStep::micro_batch_at for the work of the step's micro-batches, [place in data order], in any unit;
/// empty if all have equal work.
[[nodiscard]] std::vector<std::int64_t> fast_places(const RunShape& run, std::vector<double> work);

/// Returns where the samples of a step stand. `work` is [sample of the step], in any unit. `permutes`: whether
/// micro-batches may change places; with --reduction canonical they may not, because places decide the order of sums.
/// Everything stays in order if all samples have equal work, or in an asynchronous schedule. Deterministic.
[[nodiscard]] DealtStep deal_step(const RunShape& run, const std::vector<double>& work, bool permutes);

}  // namespace chimera
