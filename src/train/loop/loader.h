#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <vector>

#include "data/sample_prefetcher.h"
#include "data/samples.h"
#include "model/stage.h"
#include "model_config/config.h"
#include "train/setup/job.h"

// Samples as tensors: the micro-batch that a stage reads.

// What the stages of one rank read: the samples of each micro-batch, made while the step before runs, and for a device
// laid into pinned memory then.

namespace chimera {

/// Tokens, targets, masks and loss scales of a micro-batch, [b, L] each. The scales are 1 over the target tokens and
/// over the sequences of the whole step.
[[nodiscard]] MicroBatch make_micro_batch(const Samples& samples, Family family, const BatchPlace& place);
/// A micro-batch of these samples, in a step of `mini_batch` samples that have `targets_per_sample` each.
[[nodiscard]] MicroBatch make_micro_batch(const std::vector<Sample>& samples, Family family,
                                          std::int64_t targets_per_sample, std::int64_t mini_batch);

/// The micro-batch as on_device() wants it for `device`: for the CPU itself, else copies in pinned memory.
[[nodiscard]] MicroBatch ready_for(MicroBatch batch, at::Device device);
/// The micro-batch with its tensors on `device`: the same ones on the CPU, copies elsewhere. From pinned memory the
/// calling thread's current stream makes them without being waited for.
[[nodiscard]] MicroBatch on_device(MicroBatch batch, at::Device device);

/// Loads micro-batches for a worker of one data-parallel group, on its device. What it loads depends on step and
/// micro-batch alone. The job is borrowed.
class Loader {
 public:
  Loader(const Job& job, const GroupWorker& place, at::Device device);

  /// From now on a thread makes the micro-batches of this step (from 0) and then of the next, but of none behind the
  /// run's last. Forgets those of steps that are over.
  void begin_step(std::int64_t step);
  /// The micro-batch of that training step (from 0), with its dropout masks and the scales of its loss. Empty for a
  /// stage that reads hidden states alone. Throws what reading the data throws, on whichever thread that was.
  [[nodiscard]] MicroBatch training(std::int64_t step, StageId stage, MicroBatchId micro_batch);
  /// The same of the `batch`-th mini-batch of the validation split, made now.
  [[nodiscard]] MicroBatch validation(std::int64_t batch, StageId stage, MicroBatchId micro_batch) const;
  /// Micro-batches that training() had to make while it was called, as no step that had begun announced them.
  [[nodiscard]] std::int64_t made_late() const { return prefetcher_.made_late(); }

 private:
  [[nodiscard]] bool reads_samples(StageId stage) const;
  [[nodiscard]] BatchPlace place_of(std::int64_t step, MicroBatchId micro_batch) const;
  [[nodiscard]] MicroBatch made(const Samples& source, const BatchPlace& place) const;

  const Job& job_;
  GroupWorker place_;
  at::Device device_;
  std::vector<MicroBatchId> micro_batches_;  // of a step, that this worker reads, in the order of their forwards
  Prefetcher<MicroBatch> prefetcher_;        // last: its thread uses the others
};

}  // namespace chimera
