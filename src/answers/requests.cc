#include "answers/requests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "check/check_schedule.h"
#include "core/choices.h"
#include "core/complete_name.h"
#include "core/error.h"
#include "generate/registry.h"
#include "schedule/schedule_csv.h"
#include "simulate/costs_json.h"

namespace chimera::playground {
namespace {

std::int64_t value_on(const ShapeAxis& axis, const JsonValue& value) {
  if (axis.is_number()) {
    if (!value.json().is_number_integer()) value.fail("is not a whole number");
    return value.json().get<std::int64_t>();
  }
  const std::string word = value.text();
  const auto found = std::find(axis.names.begin(), axis.names.end(), word);
  if (found == axis.names.end()) {
    value.fail(unknown_name(axis.name, word, std::vector<std::string>(axis.names.begin(), axis.names.end())));
  }
  return found - axis.names.begin();
}

void set_parameter(const std::string& name, const JsonValue& parameters, PipelineShape& shape) {
  std::vector<std::string> names;
  for (const ShapeAxis& axis : shape_axes()) {
    names.emplace_back(axis.name);
    if (axis.name == name) return axis.set(shape, value_on(axis, parameters.field(name.c_str())));
  }
  parameters.fail(unknown_name("parameter", name, names));
}

void require_few(std::int64_t ops) {
  if (ops <= kMaxPlaygroundOps) return;
  throw ConfigError(
      fmt::format("{} ops are more than the {} that the playground holds; use fewer stages or "
                  "micro-batches, or the program",
                  ops, kMaxPlaygroundOps));
}

/// Refuses parameters of other schedules.
void require_taken(const JsonValue& value, const Generator& generator) {
  if (!value.has("parameters")) return;
  // A parameter that a schedule lacks would be ignored, and the page would show a wrong setting.
  std::vector<std::string_view> taken;
  for (const SupportedAxis& axis : generator.axes) taken.push_back(shape_axis(axis.axis).name);
  const JsonValue parameters = value.field("parameters");
  for (const auto& entry : parameters.json().items()) {
    if (std::ranges::find(taken, entry.key()) != taken.end()) continue;
    parameters.fail(fmt::format("{} takes no {}; {}", generator.name, entry.key(),
                                taken.empty() ? "it has no parameters besides stages and micro_batches"
                                              : fmt::format("it takes {}", fmt::join(taken, ", "))));
  }
}

Schedule generate_requested(const JsonValue& value) {
  value.expect_object({"name", "stages", "micro_batches", "parameters"});
  const Generator& generator = find_generator(complete_name(value.text("name"), schedule_names()));
  // Negative counts are read too, so that the refusal of the schedule says what it needs.
  constexpr std::int64_t kMin = -1'000'000'000;
  if (const std::int64_t stages = value.count("stages", kMin); stages < 1) {  // The schedule names what would be right
    throw ConfigError(fmt::format("schedule {}: {}", generator.name,
                                  *generator.find_shape_error(default_shape(generator, stages, 1))));
  }
  const PipelineShape shape =
      requested_shape(value, default_shape(generator, value.count("stages", 1), value.count("micro_batches", 1)));
  require_taken(value, generator);
  // A lower bound before generation: every worker runs each of its stages at least forward and backward.
  if (!generator.find_shape_error(shape))
    require_few(2 * shape.stages * shape.micro_batches * std::max<std::int64_t>(1, generator.stages_per_worker(shape)));
  Schedule schedule = generator.generate(shape);
  require_few(num_ops(schedule));
  return schedule;
}

StageCosts share_of(const JsonValue& value) {
  const double input = number_or(value, "input_gradient", 1);
  const double weight = number_or(value, "weight_gradient", 1);
  return {number_or(value, "forward", 1), input + weight, input, weight};
}

void scale(StageCosts& costs, double factor) {
  for (double* part : {&costs.forward, &costs.backward, &costs.input_gradient, &costs.weight_gradient}) *part *= factor;
}

CostModel given_costs(const JsonValue& value, const Schedule& schedule) {
  value.expect_object({"forward", "input_gradient", "weight_gradient", "latency", "stage_factors", "all_reduce",
                       "weights", "activations"});
  // Sliders of the page set times of a worker's whole share, as the flags of `chimera simulate` do.
  CostModel costs = CostModel::uniform(schedule, share_of(value), number_or(value, "latency", 0));
  if (value.has("stage_factors")) {
    const std::vector<double> factors = value.field("stage_factors").numbers(schedule.stages, "stage");
    for (std::size_t s = 0; s < factors.size(); ++s) scale(costs.stages[s], factors[s]);
  }
  if (const double seconds = number_or(value, "all_reduce", 0); seconds > 0 && !schedule.updates) {
    costs.all_reduce.emplace();
    costs.all_reduce->seconds.assign(costs.stages.size(), seconds);
  }
  const double weights = number_or(value, "weights", 0);
  const double activations = number_or(value, "activations", 0);
  if (weights > 0 || activations > 0) {
    const double share = stage_fraction(schedule);
    costs.memory.assign(costs.stages.size(), {.weights = weights * share, .activations = activations * share});
  }
  return costs;
}

Schedule read(const JsonValue& value) {
  value.expect_object({"text"});
  // Not validated: the page shows the faults of a schedule that a user edits.
  Schedule schedule = schedule_from_text(value.text("text"), "schedule").schedule;
  require_few(num_ops(schedule));
  return schedule;
}

}  // namespace

double number_or(const JsonValue& value, const char* name, double otherwise) {
  return value.has(name) ? value.number(name) : otherwise;
}

std::int64_t count_or(const JsonValue& value, const char* name, std::int64_t otherwise, std::int64_t least) {
  return value.has(name) ? value.count(name, least) : otherwise;
}

bool bool_or(const JsonValue& value, const char* name, bool otherwise) {
  return value.has(name) ? value.truth(name) : otherwise;
}

std::string text_or(const JsonValue& value, const char* name, const std::string& otherwise) {
  return value.has(name) ? value.text(name) : otherwise;
}

PipelineShape requested_shape(const JsonValue& value, PipelineShape shape) {
  shape.stages = value.count("stages", 1);
  shape.micro_batches = value.count("micro_batches", 1);
  if (!value.has("parameters")) return shape;
  const JsonValue parameters = value.field("parameters");
  if (!parameters.json().is_object()) parameters.fail("is no object");
  for (const auto& entry : parameters.json().items()) set_parameter(entry.key(), parameters, shape);
  return shape;
}

Schedule requested_schedule(const JsonValue& value) {
  return value.has("text") ? read(value) : generate_requested(value);
}

Schedule valid_schedule(const JsonValue& value) {
  Schedule schedule = requested_schedule(value);
  if (!value.has("text")) return schedule;
  const auto violations = check(schedule);
  if (!violations.empty()) throw ScheduleError(violations.front().message);
  return schedule;
}

CostModel requested_costs(const JsonValue& request, const Schedule& schedule) {
  // A request without costs is one with all defaults.
  const nlohmann::json usual = nlohmann::json::object();
  const JsonValue value = request.has("costs") ? request.field("costs") : JsonValue(usual, "costs");
  CostModel costs =
      value.has("file") ? costs_from_json(value.text("file"), "costs", schedule.stages) : given_costs(value, schedule);
  costs.all_reduce_placement =
      parse_named<AllReducePlacement>("sync", text_or(request, "sync", to_text(AllReducePlacement::EagerOpt)));
  costs.blocking_sends = bool_or(request, "blocking_sends", false);
  if (costs.all_reduce) costs.all_reduce->data_parallel = count_or(request, "data_parallel", 1, 1);
  return costs;
}

ModelConfig requested_model(const JsonValue& request) {
  const auto presets = preset_names();
  const std::string name = complete_name(request.text("model"), presets);
  if (std::find(presets.begin(), presets.end(), name) == presets.end())
    request.field("model").fail(unknown_name("model", name, presets));
  ModelOverrides fields;
  if (request.has("overrides")) {
    const JsonValue value = request.field("overrides");
    value.expect_object({"layers", "hidden", "heads", "key_value_heads", "vocabulary", "tied"});
    const auto take = [&](const char* field, std::optional<std::int64_t>& into) {
      if (value.has(field)) into = value.count(field, 1);
    };
    take("layers", fields.layers);
    take("hidden", fields.hidden);
    take("heads", fields.heads);
    take("key_value_heads", fields.key_value_heads);
    take("vocabulary", fields.vocabulary);
    if (value.has("tied")) fields.tied = value.truth("tied");
  }
  return with_overrides(find_model(name), fields);
}

Workload requested_workload(const JsonValue& request) {
  Workload workload = workload_of(parse_named<DataType>("dtype", text_or(request, "dtype", to_text(DataType::Float32))),
                                  parse_named<OptimizerKind>("optimizer", text_or(request, "optimizer", "adamw")),
                                  count_or(request, "sequence", 128, 1));
  workload.micro_batch_size = count_or(request, "micro_batch_size", 4, 1);
  workload.dropout = bool_or(request, "dropout", false);
  return workload;
}

}  // namespace chimera::playground
