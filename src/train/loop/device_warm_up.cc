#include "train/loop/device_warm_up.h"

#include <ATen/ATen.h>

#include <utility>

#include "train/setup/device.h"

namespace chimera {

/// BERT's attention has other ops with a mask, which only padded micro-batches have. So all combinations of program and
/// mask run once. What a first op costs, loading kernels and getting memory from the driver, can wait for the whole
/// device, and so for a message that a peer has not sent yet.
void warm_up_device(const RankContext& self, std::int64_t step, Loader& loader, DeviceProgress& progress,
                    Executor& executor) {
  const JobShape& job = self.job;
  const TrainOptions& options = self.job.options;
  if (self.device.is_cpu()) return;
  // A rank without peers waits for no message, so its first step may warm it up.
  if (job.num_ranks() == 1 && !options.numbers.op_graphs) return;
  const auto warm = [&](const Program& program, bool trains, bool is_masked) {
    const auto load = [&](StageId stage, MicroBatchId id) {
      MicroBatch batch = loader.training(step, stage, id);
      // Validation drops nothing, and so runs other kernels than training.
      if (!trains) batch.dropout = {};
      batch.attention_mask = is_masked ? at::ones_like(batch.tokens, at::kBool) : at::Tensor();
      return batch;
    };
    ObservationHooks observation = progress.observe(step);
    // No step has begun for whoever watches this rank: the longer limit of the start-up still counts.
    observation.on_instruction = [&](const Instruction&) { progress.note({RankProgress::Phase::StartUp}); };
    executor.warm_up(program.workers[self.place.worker.index()], {.load = load, .observation = std::move(observation)});
  };
  loader.warm_up(step);
  for (const bool is_masked : {false, true}) {
    if (is_masked && is_causal(job.model.family)) continue;
    warm(job.programs.training, /*trains=*/true, is_masked);
    if (options.data.validate_every > 0) warm(job.programs.validation, /*trains=*/false, is_masked);
  }
  if (options.numbers.op_graphs) {
    const auto load = [&](StageId stage, MicroBatchId id) { return loader.training(step, stage, id); };
    executor.record_ops(job.programs.training.workers[self.place.worker.index()], load,
                        graph_capture_on(accelerator()));
  }
  // Only now does the allocator hold what a step needs, so that what is free will stay free.
  require_gpu_margin(self.device);
}

}  // namespace chimera
