// The catalog tells the page what there is: schedules, their parameters, placements, models. It is made from the
// registries, so the page has no lists of its own. answer_to() passes all other requests to schedule_answers.h and
// planning_answers.h. Messages are written for the command line; with_fields() spells their flags as the page does.

#include "answers/playground.h"

#include <cctype>
#include <exception>
#include <new>

#include "answers/plan_answer.h"
#include "answers/planning_answers.h"
#include "answers/schedule_answers.h"
#include "answers/search_answer.h"
#include "core/json.h"
#include "core/mapped.h"
#include "generate/registry.h"
#include "model_config/config.h"
#include "render/colors.h"
#include "render/html.h"
#include "schedule/place_all_reduces.h"

namespace chimera::playground {
namespace {

Json generator_json(const Generator& generator) {
  Json parameters = Json::object();
  for (const SupportedAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    parameters[std::string(axis.name)] = axis_json(axis, taken.usual);
  }
  return {{"name", generator.name},
          {"rule", generator.rule},
          {"constraints", generator.constraints},
          {"closed_form", generator.closed_form},
          {"activations", generator.activations},
          {"source", generator.source},
          {"synchronous", generator.synchronous},
          {"stages", generator.figure.stages},
          {"micro_batches", generator.figure.micro_batches},
          {"parameters", parameters}};
}

Json axes_json() {
  return mapped(shape_axes(), [](const ShapeAxis& axis) {
    return Json{{"name", axis.name},
                {"symbol", axis.symbol},
                {"meaning", axis.meaning},
                {"least", axis.least},
                {"values", std::vector<std::string>(axis.names.begin(), axis.names.end())}};
  });
}

Json placements_json() {
  return mapped(named_placements(), [](const NamedPlacement& placement) {
    return Json{{"name", placement.name},
                {"parameters", mapped(placement.axes, [](Axis axis) { return shape_axis(axis).name; })}};
  });
}

Json models_json() {
  return mapped(preset_names(), [](const std::string& name) {
    const ModelConfig model = find_model(name);
    return Json{{"name", name},
                {"family", to_text(model.family)},
                {"layers", model.layers},
                {"hidden", model.hidden},
                {"heads", model.heads},
                {"key_value_heads", key_value_heads_of(model)},
                {"vocabulary", model.vocabulary},
                {"positions", model.positions},
                {"tied", model.tied}};
  });
}

/// Returns the names that the page offers: schedules with parameters, placements, models, data types, optimizers; and
/// its colors.
Json answer_catalog() {
  Json json = {{"schedules", mapped(generators(), generator_json)},
               {"axes", axes_json()},
               {"placements", placements_json()},
               {"models", models_json()},
               {"dtypes", names_of<DataType>()},
               {"optimizers", names_of<OptimizerKind>()},
               {"syncs", names_of<AllReducePlacement>()},
               {"page", page_colors()}};
  for (int kind = 0; kind < kOpKinds; ++kind) json["op_colors"].push_back(to_hex(color_of(static_cast<OpKind>(kind))));
  return json;
}

Json answer_to(const JsonValue& request, const Progress& progress) {
  const std::string what = request.text("do");
  if (what == "catalog") return answer_catalog();
  if (what == "simulate") return answer_simulate(request);
  if (what == "export") return answer_export(request);
  if (what == "read") return answer_read(request);
  if (what == "check") return answer_check(request);
  if (what == "sweep") return answer_sweep(request);
  if (what == "search") return answer_search(request, progress);
  if (what == "model") return answer_model(request);
  if (what == "plan") return answer_plan(request);
  const std::vector<std::string> known = {"catalog", "simulate", "export", "read", "check",
                                          "sweep",   "search",   "model",  "plan"};
  request.field("do").fail(unknown_name("request", what, known));
}

/// Spells flags as fields: `--max-in-flight` becomes `max_in_flight`.
std::string with_fields(const std::string& message) {
  std::string text;
  bool is_flag = false;
  for (std::size_t i = 0; i < message.size(); ++i) {
    // A flag begins a word and continues with lower-case letters; other dashes of a message stay.
    const bool begins = message.compare(i, 2, "--") == 0 && (i == 0 || message[i - 1] == ' ') &&
                        i + 2 < message.size() && std::islower(static_cast<unsigned char>(message[i + 2])) != 0;
    if (begins) i += 2;
    is_flag = begins || (is_flag && (message[i] == '-' || std::islower(static_cast<unsigned char>(message[i])) != 0));
    text += is_flag && message[i] == '-' ? '_' : message[i];
  }
  return text;
}

}  // namespace

std::string answer(std::string_view request, const Progress& progress) {
  try {
    const nlohmann::json json = parse_json(std::string(request), "request");
    return json_text(answer_to(JsonValue(json, ""), progress));
  } catch (const std::bad_alloc&) {
    // WebAssembly has 4 GiB at most, so that large schedules end here.
    return json_text(Json{{"error", "out of memory; use fewer stages or micro-batches"}});
  } catch (const std::exception& error) {
    return json_text(Json{{"error", with_fields(error.what())}});
  }
}

}  // namespace chimera::playground
