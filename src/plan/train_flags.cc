#include "plan/train_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <sstream>

#include "core/json.h"
#include "generate/registry.h"
#include "plan/stage_model.h"

namespace chimera {
TrainFlags train_flags(const PlanProblem& problem, const Candidate& candidate) {
  const PipelineShape& shape = candidate.shape;
  const Generator& generator = find_generator(candidate.schedule);
  TrainFlags flags = {{"schedule", candidate.schedule},
                      {"stages", shape.stages},
                      {"micro-batches", shape.micro_batches},
                      {"data-parallel", candidate.data_parallel},
                      {"micro-batch-size", candidate.micro_batch_size},
                      {"recompute", to_text(recompute_choice(candidate))},
                      {"partition", to_text(candidate.partition)}};
  for (const SupportedAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    if (taken.axis == Axis::Slices && shape.slices == 1) continue;
    flags[std::string(axis.name)] = axis.is_number() ? TrainFlags(axis.get(shape)) : TrainFlags(axis.text(shape));
  }
  if (shape.slices > 1) {
    const auto bounds = planned_slices(problem, candidate.micro_batch_size, shape.slices);
    std::vector<std::int64_t> lengths(bounds.size());
    std::adjacent_difference(bounds.begin(), bounds.end(), lengths.begin());
    flags["slice-lengths"] = fmt::format("{}", fmt::join(lengths.begin() + 1, lengths.end(), ","));
  }
  if (candidate.tensor_parallel > 1) flags["tensor-parallel"] = candidate.tensor_parallel;
  if (!candidate.offload.empty()) flags["offload"] = to_text(offload_choice(candidate));
  if (candidate.replica_layout != ReplicaLayout::Near) flags["replica-layout"] = to_text(candidate.replica_layout);
  if (problem.sync != AllReducePlacement::EagerOpt) flags["sync"] = to_text(problem.sync);
  if (problem.shard_optimizer || candidate.shard_optimizer) flags["shard-optimizer"] = true;
  return flags;
}

std::string value_text(const TrainFlags& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

std::vector<std::string> to_words(const TrainFlags& flags) {
  std::vector<std::string> words;
  for (const auto& [name, value] : flags.items()) {
    words.push_back("--" + name);
    if (!value.is_boolean()) words.push_back(value_text(value));
  }
  return words;
}

std::string to_toml(const TrainFlags& flags, const std::string& comment) {
  std::string text;
  std::istringstream lines(comment);
  for (std::string line; std::getline(lines, line);) text += "# " + line + "\n";
  // JSON's texts, numbers and truths have the same form in TOML.
  for (const auto& [name, value] : flags.items()) text += name + " = " + json_text(value) + "\n";
  return text;
}

}  // namespace chimera
