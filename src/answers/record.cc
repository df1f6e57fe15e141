#include "answers/record.h"

#include "answers/search_answer.h"
#include "check/check_schedule.h"
#include "core/json.h"
#include "core/json_value.h"
#include "schedule/schedule_json.h"
#include "search/instance.h"
#include "simulate/costs_json.h"

namespace chimera {

Record record_from_json(const std::string& text, const std::string& source) {
  const nlohmann::json json = parse_json(text, source);
  const JsonValue value(json, source);
  // Stages, micro-batches, author and date are for readers of the file.
  value.expect_object({"name", "placement", "stages", "micro_batches", "costs", "max_in_flight", "schedule", "makespan",
                       "lower_bound", "by", "date"});
  Record record{.name = value.text("name"),
                .placement = value.text("placement"),
                .problem = {},
                .schedule = schedule_from_json(json_text(value.field("schedule").json()), source + ": schedule"),
                .makespan = value.number("makespan"),
                .lower_bound = value.number("lower_bound")};
  const auto violations = check(record.schedule);
  if (!violations.empty()) value.field("schedule").fail(violations.front().message);
  // The field `placement` is only a name: stages are where the schedule has them.
  record.problem.layout = search_layout_of(record.schedule);
  // The readers of schedules and costs take texts, so the parts of the file are written as text again.
  const JsonValue costs = value.field("costs");
  record.problem.costs = costs_from_json(json_text(costs.json()), source + ": costs", record.schedule.stages);
  // Only costs that split a backward allow orders that do.
  record.problem.split_backward = costs.field("stages").list().front().has("input_gradient");
  if (value.has("max_in_flight")) {
    record.max_in_flight = value.number("max_in_flight");
    record.problem.limits.push_back(limit_in_flight(record.problem.layout, *record.max_in_flight, "max_in_flight"));
  }
  return record;
}

}  // namespace chimera
