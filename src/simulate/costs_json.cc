#include "simulate/costs_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/nearest.h"

namespace chimera {
namespace {

using Json = nlohmann::json;

/// A value of the text that knows its place, for messages such as `costs.json: stages[2].forward: ...`.
class Value {
 public:
  Value(const Json& json, std::string source, std::string path = "")
      : json_(json), source_(std::move(source)), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(fmt::format("{}: {}: {}", source_, path_.empty() ? "top level" : path_, what));
  }

  void expect_object(std::initializer_list<const char*> fields) const {
    if (!json_.is_object()) fail(fmt::format("expected an object, found {}", json_.type_name()));
    const std::vector<std::string> known(fields.begin(), fields.end());
    for (const auto& item : json_.items()) {
      if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
        fail(unknown_name("field", item.key(), known));
      }
    }
  }

  [[nodiscard]] bool has(const char* name) const { return json_.contains(name); }

  [[nodiscard]] Value field(const char* name) const {
    if (!has(name)) fail(fmt::format("field '{}' is missing", name));
    return {json_[name], source_, path_.empty() ? name : path_ + "." + name};
  }

  [[nodiscard]] std::vector<Value> list(std::int64_t entries, const char* of_what) const {
    if (!json_.is_array()) fail(fmt::format("expected an array, found {}", json_.type_name()));
    if (static_cast<std::int64_t>(json_.size()) != entries)
      fail(fmt::format("{} entries; expected {}, one for each {}", json_.size(), entries, of_what));
    std::vector<Value> values;
    for (std::size_t i = 0; i < json_.size(); ++i)
      values.emplace_back(json_[i], source_, fmt::format("{}[{}]", path_, i));
    return values;
  }

  [[nodiscard]] double number() const {
    if (!json_.is_number()) fail(fmt::format("expected a number, found {}", json_.type_name()));
    const auto value = json_.get<double>();
    if (!std::isfinite(value) || value < 0) fail(fmt::format("expected a finite number of 0 or more, found {}", value));
    return value;
  }

  [[nodiscard]] double number(const char* name) const { return field(name).number(); }

  /// A list of numbers, or one number that stands for all of them.
  [[nodiscard]] std::vector<double> numbers(std::int64_t entries, const char* of_what) const {
    if (json_.is_number()) return std::vector<double>(static_cast<std::size_t>(entries), number());
    std::vector<double> values;
    for (const Value& value : list(entries, of_what)) values.push_back(value.number());
    return values;
  }

 private:
  const Json& json_;
  std::string source_;
  std::string path_;
};

StageCosts read_stage(const Value& value) {
  value.expect_object({"forward", "backward", "input_gradient", "weight_gradient"});
  StageCosts costs;
  costs.forward = value.number("forward");
  const bool split = value.has("input_gradient") || value.has("weight_gradient");
  if (!split && !value.has("backward"))
    value.fail("field 'backward' is missing, or 'input_gradient' and 'weight_gradient'");
  if (split) {
    costs.input_gradient = value.number("input_gradient");
    costs.weight_gradient = value.number("weight_gradient");
  }
  costs.backward = value.has("backward") ? value.number("backward") : costs.input_gradient + costs.weight_gradient;
  if (!split) costs.input_gradient = costs.weight_gradient = costs.backward / 2;
  return costs;
}

LinkCosts read_links(const Value& value, std::int64_t stages) {
  value.expect_object({"alpha", "beta", "bytes"});
  return {value.number("alpha"), value.number("beta"),
          value.field("bytes").numbers(stages - 1, "boundary between stages")};
}

AllReduceCosts read_all_reduce(const Value& value, std::int64_t stages) {
  AllReduceCosts costs;
  if (value.has("seconds")) {
    value.expect_object({"seconds", "tied"});
    costs.seconds = value.field("seconds").numbers(stages, "stage");
  } else {
    value.expect_object({"alpha", "beta", "bytes", "seconds", "tied"});
    costs.alpha = value.number("alpha");
    costs.beta = value.number("beta");
    costs.bytes = value.field("bytes").numbers(stages, "stage");
  }
  if (value.has("tied")) costs.tied = value.number("tied");
  return costs;
}

StageMemory read_memory(const Value& value) {
  value.expect_object({"weights", "gradients", "optimizer", "activations", "boundary"});
  return {value.number("weights"), value.number("gradients"), value.number("optimizer"), value.number("activations"),
          value.number("boundary")};
}

Json parse(const std::string& text, const std::string& source) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    std::string what = error.what();
    if (const auto bracket = what.find("] "); bracket != std::string::npos) what.erase(0, bracket + 2);
    throw ConfigError(fmt::format("{}: JSON: {}", source, what));
  }
}

}  // namespace

CostModel costs_from_json(const std::string& text, const std::string& source, std::int64_t stages) {
  const Json json = parse(text, source);
  const Value root(json, source);
  root.expect_object({"latency", "stages", "links", "all_reduce", "optimizer", "recompute", "memory"});
  CostModel costs;
  costs.latency = root.number("latency");
  for (const Value& stage : root.field("stages").list(stages, "stage")) costs.stages.push_back(read_stage(stage));
  if (root.has("links")) costs.links = read_links(root.field("links"), stages);
  if (root.has("all_reduce")) costs.all_reduce = read_all_reduce(root.field("all_reduce"), stages);
  if (root.has("optimizer")) costs.optimizer = root.field("optimizer").numbers(stages, "stage");
  if (root.has("recompute")) costs.recompute = root.field("recompute").numbers(stages, "stage");
  if (root.has("memory")) {
    for (const Value& stage : root.field("memory").list(stages, "stage")) costs.memory.push_back(read_memory(stage));
  }
  return costs;
}

}  // namespace chimera
