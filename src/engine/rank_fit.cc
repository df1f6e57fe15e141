#include "engine/rank_fit.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/resident_memory.h"
#include "engine/held_stages.h"
#include "engine/initial_messages.h"
#include "engine/programs.h"

namespace chimera {

RankFit::RankFit(const FitRun& run, RankId rank, Transport& transport)
    : run_(run), place_(run.ranks.place(rank)), transport_(transport) {
  stages_ = make_held_stages(run, place_.worker, [&](StageId id) {
    return make_module_stage(run.stage(id), run.model.layers, run.use(id), run.options.seed);
  });
  const std::map<StageId, ModuleStage*> stages = borrow<ModuleStage>(stages_);
  share_initial_values(run, rank, stages, transport);
  // Making stages draws from the process's generator, and so may their first forwards: these come after, one by one.
  std::array<double, 1> made{};
  transport.all_sum(made);
  ProgramShape shape = program_shape(run, place_.group);
  shape.boundaries = find_boundaries(run, rank, stages, transport);
  if (run.canonical) {
    shape.canonical = &*run.canonical;
    shape.parameters = gather_parameter_names(run, rank, stages, transport);
  }
  executor_ = std::make_unique<Executor>(place_.worker, borrow<Stage>(stages_), transport_, TensorSpec(), shape);
}

FitStep RankFit::train_step(std::int64_t step) {
  if (!optimizer_) {
    std::vector<ParameterGroup*> in_order;
    for (const auto& [id, stage] : stages_) in_order.push_back(stage.get());
    optimizer_ = make_optimizer(run_.options.optimizer, in_order);
  }
  const double rate = run_.options.learning_rate.at(step, run_.options.steps);
  FitStep done = train_step(step, [&](double norm) { optimizer_->step(rate, clip_factor(norm, run_.options.clip)); });
  done.learning_rate = rate;
  return done;
}

FitStep RankFit::train_step(std::int64_t step, const Update& update) {
  const StepResult result = run(run_.program, step, update);
  return {step + 1, sum_in_data_order(run_, result.losses), result.gradient_norm, 0};
}

double RankFit::validation_loss(std::int64_t step) {
  return sum_in_data_order(run_, run(run_.validation, step, {}).losses);
}

StepResult RankFit::run(const Program& program, std::int64_t step, const Update& update) {
  load_targets(step);
  const StepHooks hooks{
      .step = step + 1,
      .load = [&](StageId stage, MicroBatchId id) { return load(step, stage, id); },
      .optimizer_step = update,
      .peak_memory = peak_resident_bytes,
  };
  return executor_->run(program.workers[place_.worker.index()], hooks);
}

/// Loads the targets of the micro-batches whose last stage is here, and sums the counts of all ranks.
void RankFit::load_targets(std::int64_t step) {
  targets_.clear();
  const StageId last(run_.schedule.stages - 1);
  const auto replicas = micro_batches_of_replicas(run_.schedule);
  std::array<double, 1> count{};
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    if (run_.schedule.placement.worker(ReplicaId(static_cast<std::int64_t>(r)), last) != place_.worker) continue;
    for (const MicroBatchId id : replicas[r]) {
      targets_[id] = run_.data(run_.samples(step, place_.group, id)).target;
      count[0] += static_cast<double>(run_.model.loss.count(targets_[id]));
    }
  }
  transport_.all_sum(count);
  if (!(count[0] > 0)) throw Error(fmt::format("step {}: Loss::count counts nothing in any target", step + 1));
  loss_scale_ = 1 / count[0];
}

MicroBatch RankFit::load(std::int64_t step, StageId stage, MicroBatchId micro_batch) const {
  const SampleRange samples = run_.samples(step, place_.group, micro_batch);
  MicroBatch batch;
  if (stage == StageId(0)) batch.tokens = run_.data(samples).input;
  if (stage.value() + 1 == run_.schedule.stages) batch.targets = targets_.at(micro_batch);
  batch.token_loss_scale = loss_scale_;
  batch.dropout = {.seed = run_.options.seed, .step = step, .first_sample = samples.first};
  return batch;
}

}  // namespace chimera
