#pragma once

// Loads the micro-batches of a rank. Every rank reads the same data files, but only the samples that its own stages
// need, so no rank sends data to another. A thread prepares the micro-batches of the next step during the current one,
// in pinned memory if the rank has a GPU. The executor calls Loader through StepHooks::load (runtime/step_hooks.h).

#include <mutex>

#include "data/sample_prefetcher.h"
#include "data/samples.h"
#include "engine/dealing.h"
#include "model/stage.h"
#include "model_config/config.h"
#include "train/setup/job.h"

namespace chimera {

/// Returns the micro-batch with the samples at `place` (data/sample_prefetcher.h): tokens, targets and masks [samples,
/// tokens], and the loss scales. MicroBatch::token_loss_scale is 1 divided by the number of targets in the whole step;
/// sentence_loss_scale is 1 divided by the number of samples in the whole step.
[[nodiscard]] MicroBatch make_micro_batch(const Samples& samples, Family family, const BatchPosition& place);
/// Returns the micro-batch with these samples. For the loss scales, the step has `mini_batch` samples with
/// `targets_per_sample` targets each.
[[nodiscard]] MicroBatch make_micro_batch(const std::vector<Sample>& samples, Family family,
                                          std::int64_t targets_per_sample, std::int64_t mini_batch);

/// Returns the micro-batch in pinned memory, from which on_device() can copy asynchronously; unchanged if `device` is
/// the CPU.
[[nodiscard]] MicroBatch pin_memory(MicroBatch batch, at::Device device);
/// Returns the micro-batch on `device`; pinned memory is copied asynchronously on the current stream.
[[nodiscard]] MicroBatch on_device(MicroBatch batch, at::Device device);

/// Loads the micro-batches of one worker of a data-parallel group (`place`) to its device. Borrows the job. For the
/// rank's own thread, except for dealt().
class Loader {
 public:
  Loader(const Job& job, const GroupWorker& place, at::Device device);

  /// Allocates the pinned memory that all steps need, because an allocation in a step may wait for the whole GPU, and
  /// so for receives. Call it after the first begin_step(). Waits until this step and the next are prefetched. Does
  /// nothing on the CPU.
  void warm_up(std::int64_t step);
  /// Prefetches this step (from 0) and the next. Forgets earlier steps, except for the step before this one, which an
  /// asynchronous schedule may still need.
  void begin_step(std::int64_t step);
  /// Returns the micro-batch of `step` (from 0) for a stage, with the dropout settings and loss scales. It has no
  /// tokens if the stage reads only hidden states. Throws the errors of reading the data.
  [[nodiscard]] MicroBatch training(std::int64_t step, StageId stage, MicroBatchId micro_batch);
  /// Returns how the samples of `step` (from 0) are dealt to micro-batches (engine/dealing.h). Any thread may call it.
  [[nodiscard]] std::shared_ptr<const DealtStep> dealt(std::int64_t step) const;
  /// Returns a micro-batch of the `batch`-th mini-batch (from 0) of the validation split, without prefetching. If the
  /// split is shorter than a mini-batch, samples whose targets do not count fill it up.
  [[nodiscard]] MicroBatch validation(std::int64_t batch, StageId stage, MicroBatchId micro_batch) const;
  /// Returns how many micro-batches were not prefetched and so were made by the calling thread.
  [[nodiscard]] std::int64_t cache_misses() const { return prefetcher_.cache_misses(); }

 private:
  [[nodiscard]] bool reads_samples(StageId stage) const;
  [[nodiscard]] MicroBatch make(const BatchPosition& place) const;
  [[nodiscard]] MicroBatch checked(MicroBatch batch) const;
  [[nodiscard]] BatchPosition place_of(std::int64_t step, MicroBatchId micro_batch) const;

  const Job& job_;
  GroupWorker place_;
  at::Device device_;
  // Micro-batches that the worker reads in each step, in the order of forwards
  std::vector<MicroBatchId> micro_batches_;
  mutable std::mutex mutex_;                                                // Guards dealt_
  mutable std::map<std::int64_t, std::shared_ptr<const DealtStep>> dealt_;  // [step]
  Prefetcher<MicroBatch> prefetcher_;                                       // Last member: its thread uses the others
};

}  // namespace chimera
