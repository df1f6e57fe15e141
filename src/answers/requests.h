#pragma once

// Fields of the playground's requests that several answers read: schedules, costs, models, workloads. Missing fields
// have defaults; every other deviation ends with a ConfigError that names the field.

#include <cstdint>
#include <string>

#include "core/json_value.h"
#include "model_config/config.h"
#include "model_config/footprint.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera::playground {

inline constexpr std::int64_t kMostPlayedOps = 1'000'000;

/// Return a field's value, or `otherwise` if it is missing. Throw ConfigError for a value of another type, or below
/// `least`.
[[nodiscard]] double number_or(const JsonValue& value, const char* name, double otherwise);
[[nodiscard]] std::int64_t count_or(const JsonValue& value, const char* name, std::int64_t otherwise,
                                    std::int64_t least = 0);
[[nodiscard]] bool truth_or(const JsonValue& value, const char* name, bool otherwise);
[[nodiscard]] std::string text_or(const JsonValue& value, const char* name, const std::string& otherwise);

/// Returns `shape` with `stages`, `micro_batches` and `parameters` (an object with names of shape_axes()) of a request.
/// Throws ConfigError for an unknown or invalid parameter.
[[nodiscard]] PipelineShape requested_shape(const JsonValue& value, PipelineShape shape = {});

/// Generates a schedule from {"name", "stages", "micro_batches", "parameters"}, or parses JSON or CSV from {"text"}
/// without validation. Throws ConfigError if the name, shape or text is invalid, or for more than kMostPlayedOps ops.
[[nodiscard]] Schedule requested_schedule(const JsonValue& value);
/// Returns requested_schedule(). Throws ScheduleError with the first fault of an invalid text.
[[nodiscard]] Schedule valid_schedule(const JsonValue& value);

/// Reads a request's `costs`: {"file": text} as in `chimera simulate --costs`, or single fields. `forward`,
/// `input_gradient` and `weight_gradient` are times of a worker's whole share, scaled by `stage_factors` per stage.
/// `latency` is the time of a message, `all_reduce` the time of a stage's all-reduce. `weights` and `activations` are
/// bytes per share. The request's `sync`, `data_parallel` and `blocking_sends` are like the flags of these names.
/// Throws ConfigError for invalid values.
[[nodiscard]] CostModel requested_costs(const JsonValue& request, const Schedule& schedule);

[[nodiscard]] ModelConfig requested_model(const JsonValue& request);
/// Reads `micro_batch_size`, `sequence`, `dtype`, `optimizer` and `dropout`. Throws ConfigError for invalid values.
[[nodiscard]] Workload requested_workload(const JsonValue& request);

}  // namespace chimera::playground
