#pragma once
// The parts that several kinds of requests have in common.

#include <cstdint>
#include <string>

#include "model_config/config.h"
#include "model_config/footprint.h"
#include "schedule/json_value.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera::playground {

/// Most ops of a schedule that the page makes or reads.
inline constexpr std::int64_t kMostPlayedOps = 1'000'000;

/// A field's value, or what stands for it where the request does not have it.
[[nodiscard]] double number_or(const JsonValue& value, const char* name, double otherwise);
[[nodiscard]] std::int64_t count_or(const JsonValue& value, const char* name, std::int64_t otherwise,
                                    std::int64_t least = 0);
[[nodiscard]] bool truth_or(const JsonValue& value, const char* name, bool otherwise);
[[nodiscard]] std::string text_or(const JsonValue& value, const char* name, const std::string& otherwise);

/// `stages`, `micro_batches` and `parameters`, an object with values of shape_axes() by their names, which replace
/// those of `shape`. Throws ConfigError for an unknown parameter.
[[nodiscard]] PipelineShape requested_shape(const JsonValue& value, PipelineShape shape = {});

/// {"name", "stages", "micro_batches", "parameters"} of a generated schedule, or {"text"} with one in JSON or CSV,
/// which is taken as it is. Throws ConfigError where there is none of that name and shape, or it has more than
/// kMostPlayedOps ops.
[[nodiscard]] Schedule requested_schedule(const JsonValue& value);
/// The same, and a text's schedule must be one. Throws ScheduleError with its first fault.
[[nodiscard]] Schedule valid_schedule(const JsonValue& value);

/// The costs in the field `costs`: {"file": text} as `chimera simulate --costs` reads it, or times of a worker's whole
/// share (`forward`, `input_gradient`, `weight_gradient`, `latency`), `stage_factors` of each stage, the time of one
/// stage's `all_reduce`, and of a share the bytes of `weights` and `activations`. Beside `costs` the fields `sync`,
/// `data_parallel` and `blocking_sends`, as the flags of these names.
[[nodiscard]] CostModel requested_costs(const JsonValue& request, const Schedule& schedule);

/// `model`, a preset, with the fields of `overrides` in place of its own.
[[nodiscard]] ModelConfig requested_model(const JsonValue& request);
/// `micro_batch_size`, `sequence`, `dtype`, `optimizer` and `dropout`.
[[nodiscard]] Workload requested_workload(const JsonValue& request);

}  // namespace chimera::playground
