#include "answers/requests.h"

#include <algorithm>

#include "answers/json_door.h"
#include "core/choices.h"
#include "core/complete_name.h"
#include "core/error.h"

namespace chimera::playground {

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

ScheduleRequest requested_schedule(const JsonValue& value) {
  auto request = read_request<ScheduleRequest>(value, {});
  request.most_ops = kMaxPlaygroundOps;
  return request;
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
