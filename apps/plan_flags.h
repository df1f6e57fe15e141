#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "model_flags.h"
#include "plan/candidate.h"
#include "plan/train_flags.h"
#include "schedule/schedule.h"

// Where a schedule has several orders and costs decide among them.

// The flags that say what is to be planned.

namespace chimera::apps {

struct ShapedSchedule {
  PipelineShape shape;
  Schedule schedule;
};

/// The generator's schedule of the shape that ends first by `makespan`, of equals the first. With one shape nothing is
/// timed. Throws ConfigError where the generator refuses one.
[[nodiscard]] ShapedSchedule fastest_of(const Generator& generator, const std::vector<PipelineShape>& shapes,
                                        const std::function<double(const Schedule&)>& makespan);

struct PlanFlags {
  std::string model = "gpt2-mini";
  ModelFlags overrides;
  std::int64_t workers = 0;
  std::int64_t mini_batch = 0;
  double memory = 0;  // GiB; 0: what the machine has
  std::string machine;
  std::int64_t sequence = 128;
  DataType dtype = DataType::Float32;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  AllReducePlacement sync = AllReducePlacement::EagerOpt;
  bool dropout = false;
  bool shard_optimizer = false;

  void add_to(CLI::App& app);
  /// Throws ConfigError where a flag is missing or wrong, or the machine's profile is.
  [[nodiscard]] PlanProblem problem() const { return problem(overrides.overrides(), memory); }
  /// The same with the model's fields and the memory (GiB; 0: what the machine has) from elsewhere.
  [[nodiscard]] PlanProblem problem(const ModelOverrides& fields, double gibibytes) const;
  /// Model and workload as flags of `chimera train`.
  [[nodiscard]] std::vector<TrainFlag> workload_flags() const;
};

}  // namespace chimera::apps
