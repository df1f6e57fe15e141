#include "plan/train_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <sstream>

#include "core/json.h"
#include "generate/registry.h"
#include "plan/stage_model.h"

namespace chimera {
std::vector<TrainFlag> train_flags(const PlanProblem& problem, const Candidate& candidate) {
  const PipelineShape& shape = candidate.shape;
  const Generator& generator = find_generator(candidate.schedule);
  std::vector<TrainFlag> flags = {{"schedule", candidate.schedule},
                                  {"stages", shape.stages},
                                  {"micro-batches", shape.micro_batches},
                                  {"data-parallel", candidate.data_parallel},
                                  {"micro-batch-size", candidate.micro_batch_size},
                                  {"recompute", to_text(recompute_choice(candidate))},
                                  {"partition", to_text(candidate.partition)}};
  for (const SupportedAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    if (taken.axis == Axis::Slices && shape.slices == 1) continue;
    if (axis.is_number()) {
      flags.push_back({std::string(axis.name), axis.get(shape)});
    } else {
      flags.push_back({std::string(axis.name), axis.text(shape)});
    }
  }
  if (shape.slices > 1) {
    const auto bounds = planned_slices(problem, candidate.micro_batch_size, shape.slices);
    std::vector<std::int64_t> lengths(bounds.size());
    // The first result is the first bound, 0, and is left out.
    std::adjacent_difference(bounds.begin(), bounds.end(), lengths.begin());
    flags.push_back({"slice-lengths", fmt::format("{}", fmt::join(lengths.begin() + 1, lengths.end(), ","))});
  }
  if (candidate.tensor_parallel > 1) flags.push_back({"tensor-parallel", candidate.tensor_parallel});
  if (!candidate.offload.empty()) flags.push_back({"offload", to_text(offload_choice(candidate))});
  if (candidate.replica_layout != ReplicaLayout::Near)
    flags.push_back({"replica-layout", to_text(candidate.replica_layout)});
  if (problem.sync != AllReducePlacement::EagerOpt) flags.push_back({"sync", to_text(problem.sync)});
  if (problem.shard_optimizer || candidate.shard_optimizer) flags.push_back({"shard-optimizer", true});
  return flags;
}

std::string value_text(const TrainFlag& flag) {
  if (const bool* given = std::get_if<bool>(&flag.value)) return *given ? "true" : "false";
  if (const auto* number = std::get_if<std::int64_t>(&flag.value)) return std::to_string(*number);
  return std::get<std::string>(flag.value);
}

std::vector<std::string> to_words(const std::vector<TrainFlag>& flags) {
  std::vector<std::string> words;
  for (const TrainFlag& flag : flags) {
    const bool* given = std::get_if<bool>(&flag.value);
    // A flag that is off is not written; one that is on has no value.
    if (given != nullptr && !*given) continue;
    words.push_back("--" + flag.name);
    if (given == nullptr) words.push_back(value_text(flag));
  }
  return words;
}

std::string to_toml(const std::vector<TrainFlag>& flags, const std::string& comment) {
  std::string text;
  std::istringstream lines(comment);
  for (std::string line; std::getline(lines, line);) text += "# " + line + "\n";
  for (const TrainFlag& flag : flags) {
    text += flag.name + " = ";
    // TOML quotes as JSON does.
    const bool is_text = std::holds_alternative<std::string>(flag.value);
    text += (is_text ? json_text(nlohmann::json(value_text(flag))) : value_text(flag)) + "\n";
  }
  return text;
}

}  // namespace chimera
