#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "model_flags.h"
#include "options.h"
#include "pair_flags.h"
#include "plan/candidate.h"
#include "plan/train_flags.h"
#include "schedule/schedule.h"

namespace chimera::apps {

struct ShapedSchedule {
  PipelineShape shape;
  Schedule schedule;
};

/// Generates the schedule of each shape and returns the one with the least `makespan`; the first wins a tie. Requires
/// at least one shape. Throws ConfigError if the generator rejects a shape.
[[nodiscard]] ShapedSchedule fastest_of(const Generator& generator, const std::vector<PipelineShape>& shapes,
                                        const std::function<double(const Schedule&)>& makespan);

/// Returns a function that generates the fastest of the schedules among which costs decide (ShapeFlags::by_costs), with
/// pairs as in `pairs`. `makespan` receives schedules with these pairs. `shape` and `pairs` must outlive the function.
[[nodiscard]] MakeSchedule fastest(const ShapeFlags& shape, const PairFlags& pairs,
                                   const std::function<double(const Schedule&)>& makespan);

struct PlanFlags {
  std::string model = "gpt2-mini";
  ModelFlags overrides;
  std::int64_t workers = 0;
  std::int64_t mini_batch = 0;
  double memory = 0;  // GiB per worker; 0: memory in the machine profile
  std::string machine;
  std::int64_t sequence = 128;
  DataType dtype = DataType::Float32;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  AllReducePlacement sync = AllReducePlacement::EagerOpt;
  bool dropout = false;
  bool shard_optimizer = false;

  void add_to(CLI::App& app);
  /// Returns the planner's input from the flags. Throws ConfigError if a flag or the machine profile is missing or
  /// invalid.
  [[nodiscard]] PlanProblem problem() const { return problem(overrides.overrides(), memory); }
  /// Does the same with other model fields and memory (GiB per worker; 0: memory in the machine profile).
  [[nodiscard]] PlanProblem problem(const ModelOverrides& fields, double gibibytes) const;
  /// Returns the model and workload as flags of `chimera train`, without dropout.
  [[nodiscard]] std::vector<TrainFlag> workload_flags() const;
};

}  // namespace chimera::apps
