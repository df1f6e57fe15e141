#pragma once
// What a schedule says of itself. Its own source file provides the entry; registry.cc lists them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generate/paper_model.h"
#include "generate/shape_axis.h"
#include "schedule/schedule.h"

namespace chimera {

/// A parameter of the shape as one schedule takes it.
struct TakenAxis {
  Axis axis = Axis::Pipelines;
  std::int64_t usual = 1;  // where the user says nothing
  /// The values that a planner tries for the D and N of `shape`.
  std::function<std::vector<std::int64_t>(const PipelineShape& shape)> planned;
  /// Whether the best of the planned values depends on the costs alone, so that what knows them tries all where the
  /// user names none.
  bool by_costs = false;
};

/// D and N of the picture in the documentation and in tests/golden/, its other parameters as usual.
struct FigureShape {
  std::int64_t stages = 4;
  std::int64_t micro_batches = 8;
};

/// An entry of the registry. All that depends on a shape is cheap, but for generate().
struct Generator {
  std::string name;
  /// Throws ConfigError, naming the schedule, where refusal() has a reason.
  Schedule (*generate)(const PipelineShape& shape) = nullptr;
  /// Why there is no schedule of that shape: names the flag and what would do. None where there is one.
  std::optional<std::string> (*refusal)(const PipelineShape& shape) = nullptr;

  std::string rule;         // how it orders its ops, in a sentence or two (Markdown)
  std::string constraints;  // on D, N and the other parameters
  std::string closed_form;  // of the makespan (or, where it says so, of the bubble), no latency, F <= B
  std::string activations;  // most micro-batches in flight on a worker
  std::string source;
  FigureShape figure = {};

  std::vector<TakenAxis> axes = {};  // besides D and N
  /// Stages of a replica that each worker holds: S/D.
  std::int64_t (*stages_a_worker)(const PipelineShape& shape) = [](const PipelineShape&) { return std::int64_t{1}; };
  /// Copies of the model.
  std::int64_t (*replicas)(const PipelineShape& shape) = [](const PipelineShape&) { return std::int64_t{1}; };
  bool synchronous = true;  // whether all stages update once, at the step's end
  /// Whether the paper's figure spaces forwards, each as late as nothing waits for it, instead of packing them.
  bool late_forwards = false;
  std::optional<PaperModel> paper = std::nullopt;  // where equation 1 has a closed form
};

}  // namespace chimera
