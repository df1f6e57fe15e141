#include "train/loop/step_validation.h"

#include <algorithm>
#include <string_view>

#include "inference/continuation.h"
#include "inference/distributed_model.h"
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

double StepValidation::loss(std::int64_t step) {
  const JobShape& job = self_.job;
  const std::int64_t samples = self_.job.data.validation->count();
  // At least one mini-batch, which the loader fills up if the split is shorter.
  const std::int64_t batches =
      std::clamp<std::int64_t>(samples / job.run.mini_batch(), 1, self_.job.options.data.validate_batches);
  double sum = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const StepHooks hooks{
        .step = step,
        .load = [&](StageId stage, MicroBatchId id) { return loader_.validation(batch, stage, id); },
        .observation = progress_.observe(step),
    };
    sum += driver_.validate(job.programs.validation, hooks);
  }
  return sum / static_cast<double>(batches);
}

std::string StepValidation::sample(std::int64_t step) {
  const WholeTokens whole(self_.tensor.get());  // T need not divide the tokens of a prompt
  // Replica 0 of group 0 has each stage once. The other ranks take part only in the sums.
  DistributedModel model(model_.stages(), first_replica(self_), self_.transport, self_.job.model.hidden,
                         scalar_type(self_.job.options.numbers.dtype), self_.device);
  const TrainingPrompt& prompt = *self_.job.data.prompt;
  const auto on_token = [&](TokenId, std::string_view) {
    // A text takes long compared with an op, so each token is a sign of life for the watch of hangs.
    progress_.note({RankProgress::Phase::Steps, step, Instruction{.kind = InstructionKind::ReduceScalars}});
    progress_.catch_up();
  };
  return continue_prompt(model, prompt.prompt, prompt.options, prompt.tokenizer.get(), on_token).text;
}

}  // namespace chimera
