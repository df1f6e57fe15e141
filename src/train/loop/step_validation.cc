#include "train/loop/step_validation.h"

#include <algorithm>

#include "inference/continuation.h"
#include "train/setup/data_tokenizer.h"
#include "train/setup/device.h"

namespace chimera {
namespace {

StageRanks first_replica(const RankContext& self) {
  const RunShape& shape = self.job.run;
  StageRanks ranks{.holders = {}, .self = self.rank, .is_copy = self.is_copy()};
  for (std::int64_t s = 0; s < shape.schedule.stages; ++s) {
    const WorkerId worker = shape.schedule.placement.worker(ReplicaId(0), StageId(s));
    ranks.holders.push_back(shape.ranks.rank({GroupId(0), worker}));
  }
  return ranks;
}

}  // namespace

double validation_loss(const RankContext& self, const Loader& loader, StepDriver& driver, DeviceProgress& progress,
                       std::int64_t step) {
  const JobShape& job = self.job;
  const std::int64_t samples = self.job.data.validation->count();
  // At least one mini-batch, which the loader fills up if the split is shorter.
  const std::int64_t batches =
      std::clamp<std::int64_t>(samples / job.run.mini_batch(), 1, self.job.options.data.validate_batches);
  double sum = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const StepHooks hooks{
        .step = step,
        .load = [&](StageId stage, MicroBatchId id) { return loader.validation(batch, stage, id); },
        .observation = progress.observe(step),
    };
    sum += driver.validate(job.programs.validation, hooks);
  }
  return sum / static_cast<double>(batches);
}

std::string sample_text(const RankContext& self, const TrainedModel& model, DeviceProgress& progress,
                        std::int64_t step) {
  const WholeTokens whole(self.tensor.get());  // T need not divide the tokens of a prompt
  // Replica 0 of group 0 has each stage once. The other ranks take part only in the sums.
  DistributedModel distributed(model.stages(), first_replica(self), self.transport, self.job.model.hidden,
                               scalar_type(self.job.options.numbers.dtype), self.device);
  const TrainingPrompt& prompt = *self.job.data.prompt;
  const auto on_token = [&](TokenId, std::string_view) {
    // A text takes long compared with an op, so each token is a sign of life for the watch of hangs.
    progress.note({RankProgress::Phase::Steps, step, Instruction{.kind = InstructionKind::ReduceScalars}});
    progress.catch_up();
  };
  return continue_prompt(distributed, prompt.prompt, prompt.options, prompt.tokenizer.get(), on_token).text;
}

}  // namespace chimera
