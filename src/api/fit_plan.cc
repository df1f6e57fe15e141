#include "api/fit_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "check/check_program.h"
#include "check/check_schedule.h"
#include "core/error.h"
#include "generate/one_f_one_b.h"
#include "generate/registry.h"
#include "model_config/partition.h"
#include "passes/lower.h"
#include "simulate/simulate.h"
#include "train/job.h"

namespace chimera {
namespace {

void require(bool fits, const char* what) {
  if (!fits) throw ConfigError(what);
}

void require_possible(const FitPlan& plan) {
  const FitOptions& options = plan.options;
  require(!plan.model.layers.empty(), "Model::layers: a model needs at least one layer");
  require(plan.model.loss.sum && plan.model.loss.count, "Model::loss: needs both of its functions");
  require(static_cast<bool>(plan.data), "Data: needs a function that gives batches");
  require(options.data_parallel >= 1, "FitOptions::data_parallel must be at least 1");
  require(options.micro_batch_size >= 1, "FitOptions::micro_batch_size must be at least 1");
  require(options.steps >= 1, "FitOptions::steps must be at least 1");
  require(options.learning_rate.warmup >= 0, "FitOptions::learning_rate.warmup must be at least 0");
  require(options.threads >= 0, "FitOptions::threads must be at least 0");
  require(options.learning_rate.peak > 0, "FitOptions::learning_rate.peak must be above 0");
}

bool is_unpipelined(const FitOptions& options) { return !options.own_schedule && options.schedule == "none"; }

Schedule make_schedule(const FitOptions& options) {
  if (options.own_schedule) return *options.own_schedule;
  PipelineShape shape = options.shape;
  if (shape.micro_batches == 0) shape.micro_batches = shape.stages;
  if (!is_unpipelined(options)) return find_generator(options.schedule).generate(shape);
  Schedule schedule = one_f_one_b({1, shape.micro_batches * options.data_parallel});
  schedule.name = "none";
  return schedule;
}

void require_trainable(const FitPlan& plan) {
  const Schedule& schedule = plan.schedule;
  if (const auto violations = check(schedule); !violations.empty()) throw ScheduleError(violations.front().message);
  if (schedule.updates) {
    throw ConfigError(
        fmt::format("schedule {}: asynchronous schedules do not train a model of one's own; choose one with a flush",
                    schedule.name));
  }
  const double size = static_cast<double>(plan.options.micro_batch_size) * schedule.micro_batch_scale;
  if (size != std::floor(size)) {
    throw ConfigError(
        fmt::format("FitOptions::micro_batch_size {}: the schedule takes {:g} of that at a time; give a "
                    "multiple of {:g}",
                    plan.options.micro_batch_size, schedule.micro_batch_scale, 1 / schedule.micro_batch_scale));
  }
}

std::vector<std::int64_t> partition_ends(const FitPlan& plan) {
  const auto layers = static_cast<std::int64_t>(plan.model.layers.size());
  const auto& counts = plan.options.partition;
  std::vector<std::int64_t> ends;
  if (counts.empty()) {
    for (const StageLayers& stage : even_partition(layers, plan.schedule.stages)) ends.push_back(stage.end_layer);
    return ends;
  }
  const bool positive = std::ranges::all_of(counts, [](std::int64_t count) { return count > 0; });
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (!positive || total != layers || static_cast<std::int64_t>(counts.size()) != plan.schedule.stages) {
    throw ConfigError(fmt::format("FitOptions::partition [{}] must be {} positive numbers that add up to {} layers",
                                  fmt::join(counts, ", "), plan.schedule.stages, layers));
  }
  ends.resize(counts.size());
  std::partial_sum(counts.begin(), counts.end(), ends.begin());
  return ends;
}

Program make_program(const FitPlan& plan) {
  const Timeline timeline = simulate(plan.schedule, CostModel::uniform(plan.schedule, {.forward = 1, .backward = 2}));
  LoweringOptions options;
  options.all_reduces.placement = AllReducePlacement::EagerOpt;
  options.all_reduces.timeline = &timeline;
  options.all_reduces.every_stage = plan.ranks.data_parallel > 1;
  for (std::int64_t s = 0; plan.options.recompute && s < plan.schedule.stages; ++s) options.recompute.emplace(s);
  Program program = lower(plan.schedule, options);
  if (const auto violations = check(program, ChannelDiscipline::PerDirection); !violations.empty()) {
    throw ScheduleError("the program of this schedule could get stuck: " + violations.front().message);
  }
  return program;
}

}  // namespace

std::int64_t FitPlan::micro_batch_size() const {
  return std::llround(static_cast<double>(options.micro_batch_size) * schedule.micro_batch_scale);
}

std::vector<std::vector<WorkerId>> FitPlan::rank_groups() const {
  return ranks.ranks_of(stage_groups(schedule.placement));
}

SampleRange FitPlan::samples(std::int64_t step, GroupId group, MicroBatchId micro_batch) const {
  const std::int64_t run = group.value() * schedule.micro_batches + positions[micro_batch.index()];
  return {step, run * micro_batch_size(), micro_batch_size()};
}

ModuleStageSpec FitPlan::stage(StageId id) const {
  const bool last = id.value() + 1 == schedule.stages;
  return {id, id.value() == 0 ? 0 : ends[id.index() - 1], ends[id.index()], last ? &model.loss : nullptr};
}

ModuleUse FitPlan::use(StageId id) const {
  return {.replicated = rank_groups()[id.index()].size() > 1, .recomputed = options.recompute};
}

FitPlan plan_fit(Model model, Data data, FitOptions options) {
  FitPlan plan;
  plan.model = std::move(model);
  plan.data = std::move(data);
  plan.options = std::move(options);
  require_possible(plan);
  plan.schedule = make_schedule(plan.options);
  require_trainable(plan);
  plan.ranks = {.workers = static_cast<std::int64_t>(plan.schedule.workers.size()),
                .data_parallel = is_unpipelined(plan.options) ? 1 : plan.options.data_parallel};
  plan.ends = partition_ends(plan);
  plan.positions = data_positions(plan.schedule);
  plan.program = make_program(plan);
  return plan;
}

}  // namespace chimera
