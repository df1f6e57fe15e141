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

/// Generates the schedule of each shape and returns the fastest by `makespan`, the first of equals. Throws ConfigError
/// if the generator rejects a shape.
[[nodiscard]] ShapedSchedule fastest_of(const Generator& generator, const std::vector<PipelineShape>& shapes,
                                        const std::function<double(const Schedule&)>& makespan);

/// Returns a function that generates the fastest schedule, with pairs as given, of the shapes among which costs decide
/// (ShapeFlags::by_costs). `makespan` receives schedules with these pairs.
[[nodiscard]] MakeSchedule fastest(const ShapeFlags& shape, const PairFlags& pairs,
                                   const std::function<double(const Schedule&)>& makespan);

struct PlanFlags {
  std::string model = "gpt2-mini";
  ModelFlags overrides;
  std::int64_t workers = 0;
  std::int64_t mini_batch = 0;
  double memory = 0;  // GiB; 0: memory of the machine
  std::string machine;
  std::int64_t sequence = 128;
  DataType dtype = DataType::Float32;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  AllReducePlacement sync = AllReducePlacement::EagerOpt;
  bool dropout = false;
  bool shard_optimizer = false;

  void add_to(CLI::App& app);
  /// Throws ConfigError if a flag or the machine's profile is missing or invalid.
  [[nodiscard]] PlanProblem problem() const { return problem(overrides.overrides(), memory); }
  /// Uses other model fields and memory (GiB; 0: of the machine).
  [[nodiscard]] PlanProblem problem(const ModelOverrides& fields, double gibibytes) const;
  /// Returns model and workload as flags of `chimera train`.
  [[nodiscard]] std::vector<TrainFlag> workload_flags() const;
};

}  // namespace chimera::apps
