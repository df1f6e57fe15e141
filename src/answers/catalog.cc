#include "answers/answers.h"
#include "answers/search_answer.h"
#include "core/choices.h"
#include "generate/registry.h"
#include "model_config/config.h"
#include "render/colors.h"
#include "render/page_data.h"
#include "schedule/all_reduce_placement.h"

namespace chimera::playground {
namespace {

/// A parameter's value as requests have it.
Json value_json(const ShapeAxis& axis, std::int64_t value) {
  if (axis.is_number()) return value;
  return axis.text(value);
}

Json schedule_json(const Generator& generator) {
  Json parameters = Json::object();
  for (const TakenAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    parameters[std::string(axis.name)] = value_json(axis, taken.usual);
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
  Json axes = Json::array();
  for (const ShapeAxis& axis : shape_axes()) {
    axes.push_back({{"name", axis.name},
                    {"symbol", axis.symbol},
                    {"meaning", axis.meaning},
                    {"least", axis.least},
                    {"values", std::vector<std::string>(axis.names.begin(), axis.names.end())}});
  }
  return axes;
}

Json placements_json() {
  Json placements = Json::array();
  for (const NamedPlacement& placement : named_placements()) {
    Json parameters = Json::array();
    for (const Axis axis : placement.axes) parameters.push_back(shape_axis(axis).name);
    placements.push_back({{"name", placement.name}, {"parameters", parameters}});
  }
  return placements;
}

Json models_json() {
  Json models = Json::array();
  for (const std::string& name : preset_names()) {
    const ModelConfig model = find_model(name);
    models.push_back({{"name", name},
                      {"family", to_text(model.family)},
                      {"layers", model.layers},
                      {"hidden", model.hidden},
                      {"heads", model.heads},
                      {"key_value_heads", key_value_heads_of(model)},
                      {"vocabulary", model.vocabulary},
                      {"positions", model.positions},
                      {"tied", model.tied}});
  }
  return models;
}

}  // namespace

Json catalog() {
  Json json = {{"schedules", Json::array()},
               {"axes", axes_json()},
               {"placements", placements_json()},
               {"models", models_json()},
               {"dtypes", names_of<DataType>()},
               {"optimizers", names_of<OptimizerKind>()},
               {"syncs", names_of<AllReducePlacement>()},
               {"page", page_colors()}};
  for (const Generator& generator : generators()) json["schedules"].push_back(schedule_json(generator));
  for (int kind = 0; kind < kOpKinds; ++kind) json["op_colors"].push_back(to_hex(color_of(static_cast<OpKind>(kind))));
  return json;
}

}  // namespace chimera::playground
