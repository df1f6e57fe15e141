// What a rank with a GPU does before its first step; see Trainer::warm_up_device().

#include <ATen/ATen.h>

#include "train/loop/trainer.h"
#include "train/setup/device.h"

namespace chimera {

/// Runs the ops of training and validation on the samples of `step` without messages and updates, and records graphs
/// of ops (--op-graphs). Then nothing in a step makes the GPU wait while receives are pending. Does nothing on the CPU
/// and, without --op-graphs, on the only rank of a job. Throws ConfigError if less than kGpuMargin
/// (train/setup/device.h) of the GPU's memory is free afterwards.
///
/// BERT's attention has other ops with a mask, which only padded micro-batches have. So all combinations of program and
/// mask run once. What a first op costs, loading kernels and getting memory from the driver, can wait for the whole
/// device, and so for a message that a peer has not sent yet.
void Trainer::warm_up_device(std::int64_t step) {
  const Job& job = self_.job;
  const bool has_graphs = options().numbers.op_graphs;
  // A rank without peers waits for no message, so its first step may warm it up.
  if (self_.device.is_cpu() || (job.num_ranks() == 1 && !has_graphs)) return;
  const std::size_t worker = self_.place.worker.index();
  const auto warm = [&](const Program& program, bool trains, bool is_masked) {
    const auto load = [&](StageId stage, MicroBatchId id) {
      MicroBatch batch = loader_.training(step, stage, id);
      // Validation drops nothing, and so runs other kernels than training.
      if (!trains) batch.dropout = {};
      batch.attention_mask = is_masked ? at::ones_like(batch.tokens, at::kBool) : at::Tensor();
      return batch;
    };
    ObservationHooks observation = progress_.observe(step);
    // No step has begun for whoever watches this rank: the longer limit of the start-up still counts.
    observation.on_instruction = [&](const Instruction&) { progress_.note({RankProgress::Phase::StartUp}); };
    driver_.executor().warm_up(program.workers[worker], {.load = load, .observation = std::move(observation)});
  };
  loader_.warm_up(step);
  for (const bool is_masked : {false, true}) {
    if (is_masked && is_causal(job.model.family)) continue;
    warm(job.programs.training, /*trains=*/true, is_masked);
    if (options().data.validate_every > 0) warm(job.programs.validation, /*trains=*/false, is_masked);
  }
  if (has_graphs) {
    const auto load = [&](StageId stage, MicroBatchId id) { return loader_.training(step, stage, id); };
    driver_.executor().record_ops(job.programs.training.workers[worker], load, graph_capture_on(accelerator()));
  }
  // Only now does the allocator hold what a step needs, so that what is free will stay free.
  require_gpu_margin(self_.device);
}

}  // namespace chimera
