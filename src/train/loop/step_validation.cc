// What a trainer does between steps to judge its model: the loss on the validation split, and text that it continues.

#include <algorithm>

#include "inference/continuation.h"
#include "train/loop/trainer.h"
#include "train/setup/data_tokenizer.h"
#include "train/setup/device.h"

namespace chimera {
namespace {

/// Returns the ranks of replica 0 in group 0, which has each stage once.
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

double Trainer::validation_loss() {
  const Job& job = self_.job;
  // The loader fills up a split that is shorter than a mini-batch.
  const std::int64_t batches =
      std::clamp<std::int64_t>(job.data.validation->count() / job.run.mini_batch(), 1, options().data.validate_batches);
  double sum = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const StepHooks hooks{
        .step = steps_.step(),
        .load = [&](StageId stage, MicroBatchId id) { return loader_.validation(batch, stage, id); },
        .observation = progress_.observe(steps_.step()),
    };
    sum += driver_.validate(job.programs.validation, hooks);
  }
  return sum / static_cast<double>(batches);
}

std::string Trainer::sample_text() {
  const WholeTokens whole(self_.tensor.get());  // T need not divide the tokens of a prompt
  // Ranks outside of the first replica take part only in the sums.
  DistributedModel distributed(model_.stages(), first_replica(self_), self_.transport, self_.job.model.hidden,
                               scalar_type(options().numbers.dtype), self_.device);
  const TrainingPrompt& prompt = *self_.job.data.prompt;
  const auto on_token = [&](TokenId, std::string_view) {
    // A text takes long compared with an op, so each token is a sign of life for the watch of hangs.
    progress_.note({RankProgress::Phase::Steps, steps_.step(), Instruction{.kind = InstructionKind::ReduceScalars}});
    progress_.catch_up();
  };
  return continue_prompt(distributed, prompt.prompt, prompt.options, prompt.tokenizer.get(), on_token).text;
}

}  // namespace chimera
