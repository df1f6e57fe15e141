#pragma once

#include <cstdint>
#include <string>

#include "model_config/config.h"
#include "model_config/footprint.h"
#include "schedule/json_value.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera::playground {

inline constexpr std::int64_t kMostPlayedOps = 1'000'000;

/// Return a field's value, or `otherwise` if it is missing.
[[nodiscard]] double number_or(const JsonValue& value, const char* name, double otherwise);
[[nodiscard]] std::int64_t count_or(const JsonValue& value, const char* name, std::int64_t otherwise,
                                    std::int64_t least = 0);
[[nodiscard]] bool truth_or(const JsonValue& value, const char* name, bool otherwise);
[[nodiscard]] std::string text_or(const JsonValue& value, const char* name, const std::string& otherwise);

/// Applies `stages`, `micro_batches` and `parameters` (keyed by names of shape_axes()) to `shape`. Throws ConfigError
/// for an unknown parameter.
[[nodiscard]] PipelineShape requested_shape(const JsonValue& value, PipelineShape shape = {});

/// Generates a schedule from {"name", "stages", "micro_batches", "parameters"}, or parses {"text"}, JSON or CSV,
/// without validation. Throws ConfigError if name or shape is invalid, or for more than kMostPlayedOps ops.
[[nodiscard]] Schedule requested_schedule(const JsonValue& value);
/// Also validates text. Throws ScheduleError with the first fault.
[[nodiscard]] Schedule valid_schedule(const JsonValue& value);

/// Reads `costs`: {"file": text} as in `chimera simulate --costs`, or single fields. These are times of a worker's
/// whole share (`forward`, `input_gradient`, `weight_gradient`, `latency`), `stage_factors` per stage, the `all_reduce`
/// time of a stage, and bytes of `weights` and `activations` per share. The request's `sync`, `data_parallel` and
/// `blocking_sends` are like the flags of these names.
[[nodiscard]] CostModel requested_costs(const JsonValue& request, const Schedule& schedule);

[[nodiscard]] ModelConfig requested_model(const JsonValue& request);
/// Reads `micro_batch_size`, `sequence`, `dtype`, `optimizer` and `dropout`.
[[nodiscard]] Workload requested_workload(const JsonValue& request);

}  // namespace chimera::playground
