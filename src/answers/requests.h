#pragma once

// The playground is a web page about pipeline schedules that sends requests as JSON. These functions read the fields
// that several kinds of requests share: schedules, costs (times and bytes of ops), models, and workloads (such as the
// micro-batch size). Most missing fields have defaults. A field with a wrong type or value, or an unknown field, is a
// ConfigError that names the field.

#include <cstdint>
#include <string>

#include "core/json_value.h"
#include "model_config/config.h"
#include "model_config/footprint.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera::playground {

/// Maximum number of ops in a schedule of the playground.
inline constexpr std::int64_t kMaxPlaygroundOps = 1'000'000;

/// Return the value of field `name` of the object `value`, or `otherwise` if it is missing. Throw ConfigError for a
/// value of another type, or below `least`.
[[nodiscard]] double number_or(const JsonValue& value, const char* name, double otherwise);
[[nodiscard]] std::int64_t count_or(const JsonValue& value, const char* name, std::int64_t otherwise,
                                    std::int64_t least = 0);
[[nodiscard]] bool bool_or(const JsonValue& value, const char* name, bool otherwise);
[[nodiscard]] std::string text_or(const JsonValue& value, const char* name, const std::string& otherwise);

/// Returns `shape` with the request's `stages`, `micro_batches` (both required) and `parameters`, an object of schedule
/// parameters such as `chunks`. shape_axes() (generate/generator.h) lists their names. Throws ConfigError for an
/// unknown or invalid parameter.
[[nodiscard]] PipelineShape requested_shape(const JsonValue& value, PipelineShape shape = {});

/// Generates a schedule from the object {"name", "stages", "micro_batches", "parameters"}, or parses JSON or CSV from
/// the object {"text"}. Does not call check() for a parsed schedule. Throws ConfigError if the name, shape or text is
/// invalid, or for more than kMaxPlaygroundOps ops.
[[nodiscard]] Schedule requested_schedule(const JsonValue& value);
/// Returns requested_schedule(). Throws ScheduleError with the first violation if check() rejects a parsed schedule.
[[nodiscard]] Schedule valid_schedule(const JsonValue& value);

/// Reads the costs of a request. Its field `costs` is an object {"file": text}, where the text is a file for `chimera
/// simulate --costs`, or an object of single fields:
/// - `forward`, `input_gradient`, `weight_gradient`: times of ops, for all stages that one replica of the model places
///   on a worker, together.
/// - `stage_factors`: per stage, a factor for its times.
/// - `latency`: time of a message. `all_reduce`: time of a stage's all-reduce.
/// - `weights`, `activations`: bytes of all stages that one replica places on a worker, together.
/// The request's fields `sync`, `data_parallel` and `blocking_sends` mean the same as the flags of `simulate` with
/// these names. Throws ConfigError for invalid values.
[[nodiscard]] CostModel requested_costs(const JsonValue& request, const Schedule& schedule);

/// Reads `model`, the name of a preset (required), and `overrides`, an object that replaces single fields such as
/// `layers`. Throws ConfigError for invalid values.
[[nodiscard]] ModelConfig requested_model(const JsonValue& request);
/// Reads `micro_batch_size`, `sequence`, `dtype`, `optimizer` and `dropout`. Throws ConfigError for invalid values.
[[nodiscard]] Workload requested_workload(const JsonValue& request);

}  // namespace chimera::playground
