#include "api/rank_fit.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "api/initial_messages.h"
#include "core/error.h"
#include "core/resident_memory.h"
#include "engine/held_stages.h"
#include "engine/programs.h"

namespace chimera {

RankFit::RankFit(const FitPlan& plan, RankId rank, Transport& transport)
    : plan_(plan), place_(plan.ranks.place(rank)), transport_(transport) {
  stages_ = make_held_stages(plan, place_.worker, [&](StageId id) {
    return make_module_stage(plan.stage(id), plan.model.layers, plan.use(id), plan.options.seed);
  });
  const std::map<StageId, ModuleStage*> stages = borrow<ModuleStage>(stages_);
  std::vector<ParameterGroup*> in_order;
  for (const auto& [id, stage] : stages) in_order.push_back(stage);
  share_initial_values(plan, rank, stages, transport);
  ProgramShape shape = program_shape(plan, place_.group);
  shape.boundaries = find_boundaries(plan, rank, stages, transport);
  optimizer_ = make_optimizer(plan.options.optimizer, in_order);
  executor_ = std::make_unique<Executor>(place_.worker, borrow<Stage>(stages_), transport_, TensorSpec(), shape);
}

FitStep RankFit::train_step(std::int64_t step) {
  load_targets(step);
  const double rate = plan_.options.learning_rate.at(step, plan_.options.steps);
  const StepHooks hooks{
      .step = step + 1,
      .load = [&](StageId stage, MicroBatchId id) { return load(step, stage, id); },
      .optimizer_step = [&](double norm) { optimizer_->step(rate, clip_factor(norm, plan_.options.clip)); },
      .peak_memory = peak_resident_bytes,
  };
  const StepResult result = executor_->run(plan_.program.workers[place_.worker.index()], hooks);
  return {step + 1, sum_in_data_order(plan_, result.losses), result.gradient_norm, rate};
}

/// Loads the targets of the micro-batches whose last stage is here, and sums the counts of all ranks.
void RankFit::load_targets(std::int64_t step) {
  targets_.clear();
  const StageId last(plan_.schedule.stages - 1);
  const auto replicas = micro_batches_of_replicas(plan_.schedule);
  std::array<double, 1> count{};
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    if (plan_.schedule.placement.worker(ReplicaId(static_cast<std::int64_t>(r)), last) != place_.worker) continue;
    for (const MicroBatchId id : replicas[r]) {
      targets_[id] = plan_.data(plan_.samples(step, place_.group, id)).target;
      count[0] += static_cast<double>(plan_.model.loss.count(targets_[id]));
    }
  }
  transport_.all_sum(count);
  if (!(count[0] > 0)) throw Error(fmt::format("step {}: Loss::count counts nothing in any target", step + 1));
  loss_scale_ = 1 / count[0];
}

MicroBatch RankFit::load(std::int64_t step, StageId stage, MicroBatchId micro_batch) const {
  const SampleRange samples = plan_.samples(step, place_.group, micro_batch);
  MicroBatch batch;
  if (stage == StageId(0)) batch.tokens = plan_.data(samples).input;
  if (stage.value() + 1 == plan_.schedule.stages) batch.targets = targets_.at(micro_batch);
  batch.token_loss_scale = loss_scale_;
  batch.dropout = {.seed = plan_.options.seed, .step = step, .first_sample = samples.first};
  return batch;
}

}  // namespace chimera
