#pragma once

// Micro-batches of a rank. Every rank reads the same data files and takes only the samples of its own micro-batches and
// stages, so no rank sends data to another. A thread prepares the micro-batches of the next step during the current
// one, in pinned memory for a device.

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <vector>

#include "data/sample_prefetcher.h"
#include "data/samples.h"
#include "model/stage.h"
#include "model_config/config.h"
#include "train/setup/job.h"

namespace chimera {

/// Returns tokens, targets, masks [b, L] and loss scales of a micro-batch. The scales are 1 over the target tokens, and
/// over the sequences, of the whole step.
[[nodiscard]] MicroBatch make_micro_batch(const Samples& samples, Family family, const BatchPlace& place);
/// The step has `mini_batch` samples with `targets_per_sample` each.
[[nodiscard]] MicroBatch make_micro_batch(const std::vector<Sample>& samples, Family family,
                                          std::int64_t targets_per_sample, std::int64_t mini_batch);

/// Copies the micro-batch to pinned memory unless `device` is the CPU.
[[nodiscard]] MicroBatch ready_for(MicroBatch batch, at::Device device);
/// Returns the micro-batch on `device`; pinned memory is copied asynchronously on the current stream.
[[nodiscard]] MicroBatch on_device(MicroBatch batch, at::Device device);

/// Loads micro-batches for a worker on its device. Borrows the job.
class Loader {
 public:
  Loader(const Job& job, const GroupWorker& place, at::Device device);

  /// Allocates the pinned memory that all steps need, after the first begin_step(): to allocate it in a step may wait
  /// for the whole GPU, and so for receives. Waits until this step and the next are prefetched.
  void warm_up(std::int64_t step);
  /// Prefetches this step (from 0) and the next, and forgets earlier steps.
  void begin_step(std::int64_t step);
  /// Returns the micro-batch of `step` (from 0) with dropout masks and loss scales; no samples if the stage reads only
  /// hidden states. Throws errors of reading the data.
  [[nodiscard]] MicroBatch training(std::int64_t step, StageId stage, MicroBatchId micro_batch);
  /// Returns a micro-batch of the `batch`-th mini-batch of the validation split, without prefetching.
  [[nodiscard]] MicroBatch validation(std::int64_t batch, StageId stage, MicroBatchId micro_batch) const;
  [[nodiscard]] std::int64_t cache_misses() const { return prefetcher_.cache_misses(); }

 private:
  [[nodiscard]] bool reads_samples(StageId stage) const;
  [[nodiscard]] BatchPlace place_of(std::int64_t step, MicroBatchId micro_batch) const;

  const Job& job_;
  GroupWorker place_;
  at::Device device_;
  std::vector<MicroBatchId> micro_batches_;  // Read in each step, in the order of forwards
  Prefetcher<MicroBatch> prefetcher_;        // Last member: its thread uses the others
};

}  // namespace chimera
