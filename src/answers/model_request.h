#pragma once

// `chimera model`: the request; model_answer.h has its answer.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "answers/door.h"
#include "answers/model_answer.h"
#include "answers/schedule_request.h"
#include "model_config/config.h"
#include "model_config/partition.h"
#include "plan/stage_choice.h"

namespace chimera {

/// Visits the fields that change single numbers of a preset model.
void visit_overrides(Door& door, ModelOverrides& overrides);

/// Finds a preset, also by the beginning of its name. Throws ConfigError for other names.
[[nodiscard]] ModelConfig find_preset(const std::string& name);

struct ModelRequest {
  std::string model;
  std::function<ModelConfig(const std::string& name)> find = find_preset;  // of the door
  ModelOverrides overrides = {};
  bool dropout = false;
  std::int64_t micro_batch_size = 4;
  std::optional<std::int64_t> sequence = {};  // default: 128, or as many as the model can attend to
  DataType dtype = DataType::Float32;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  PartitionChoice partition = {};
  StageChoice recompute = {};
  double memory_bytes = 0;   // for `auto` of recompute
  ScheduleRequest schedule;  // places stages on workers; one stage and as many micro-batches as stages by default

  void visit(Door& door);
};

/// The summary, and the stages that recompute.
struct ModelAnswer {
  ModelSummary summary;
  StageChoice recompute = {};
  std::set<StageId> recomputing = {};
};

/// Throws ConfigError or ScheduleError for an invalid request.
[[nodiscard]] ModelAnswer answer(const ModelRequest& request);

/// Returns costs for `chimera simulate --costs`, with times in units of 10^9 FLOPs.
[[nodiscard]] CostModel costs_of(const ModelAnswer& answer);

}  // namespace chimera
