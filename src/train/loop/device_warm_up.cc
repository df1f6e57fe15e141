#include "train/loop/device_warm_up.h"

#include <ATen/ATen.h>

#include <utility>

#include "runtime/warm_up.h"
#include "train/setup/device.h"

namespace chimera {

/// BERT's attention has other ops with a mask, which only padded micro-batches have.
void warm_up_device(const RankContext& self, std::int64_t step, Loader& loader, DeviceProgress& progress,
                    Executor& executor) {
  const JobShape& job = self.job;
  const TrainOptions& options = self.job.options;
  if (self.device.is_cpu()) return;
  if (job.num_ranks() == 1 && !options.numbers.op_graphs) return;
  const auto warm = [&](const Program& program, bool trains, bool is_masked) {
    const auto load = [&](StageId stage, MicroBatchId id) {
      MicroBatch batch = loader.training(step, stage, id);
      if (!trains) batch.dropout = {};
      batch.attention_mask = is_masked ? at::ones_like(batch.tokens, at::kBool) : at::Tensor();
      return batch;
    };
    ObservationHooks observation = progress.observe(step);
    observation.on_instruction = [&](const Instruction&) { progress.note({RankProgress::Phase::StartUp}); };
    warm_up(executor, program.workers[self.place.worker.index()],
            {.load = load, .observation = std::move(observation)});
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
  require_gpu_margin(self.device);
}

}  // namespace chimera
