#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"

// What the paper's performance model asks of a schedule (Li and Hoefler, SC'21, section 3.4, equation 1): how many ops
// stand on the critical path of a step, and where a worker has room for its sums of gradients.

// What a pipeline's shape has besides D and N, in one table. Commands read their flags from it, pictures and plans
// their words, so that a parameter is wired here and in PipelineShape, nowhere else.

// What a schedule says of itself. Its own source file provides the entry; registry.cc lists them.

namespace chimera {

/// C_f and C_b: forwards and backwards on the critical path of a step.
struct CriticalOps {
  std::int64_t forwards = 0;
  std::int64_t backwards = 0;
  friend bool operator==(const CriticalOps&, const CriticalOps&) = default;
};

/// The bubbles of a worker in which its sums of gradients are not exposed.
struct FreeRegions {
  std::int64_t backwards = 0;               // before the worker's last op, each as long as a backward: for ..
  std::int64_t first_stage = 0;             // .. the sums of this stage and later ones alone
  std::int64_t forwards_and_backwards = 0;  // around the step's end, each as long as both: for what is left of all sums
};

inline FreeRegions no_free_regions(const PipelineShape&, std::int64_t) { return {}; }

/// The model of a schedule with one stage on each worker and whole backwards.
struct PaperModel {
  /// `ratio` is B_t / F_t, at least 1. Halving counts ops of half micro-batches. What N leaves over of whole units, and
  /// fewer micro-batches than D, are counted as the last unit of the simulated order takes.
  CriticalOps (*critical_ops)(const PipelineShape& shape, double ratio) = nullptr;
  FreeRegions (*free_regions)(const PipelineShape& shape, std::int64_t worker) = no_free_regions;
};

/// A parameter of a shape; the schedules that take it say so in their entries (generator.h).
enum class Axis : std::uint8_t {
  Pipelines,  ///< 2f, Chimera's down and up pipelines together
  Chunks,     ///< v, virtual stages of a replica on each worker
  Waves,      ///< w, how often the stages go down and up the workers
  Scale,      ///< how Chimera runs more micro-batches than stages
  Order,      ///< which of two rules orders the ops
};

struct ShapeAxis {
  Axis axis;
  std::string_view name;     // of the flag without its dashes, and of the field in JSON: `pipelines`
  std::string_view symbol;   // in formulas and short descriptions: `2f`; empty: the value's own name says enough
  std::string_view meaning;  // for --help
  std::int64_t least;        // value
  std::span<const std::string_view> names;  // of the values from 0 on; empty: values are numbers
  std::int64_t (*get)(const PipelineShape&);
  void (*set)(PipelineShape&, std::int64_t);

  [[nodiscard]] std::string flag() const { return "--" + std::string(name); }
  [[nodiscard]] bool is_number() const { return names.empty(); }
  /// A value as the flag takes it: `4`, `doubling`.
  [[nodiscard]] std::string text(std::int64_t value) const;
  [[nodiscard]] std::string text(const PipelineShape& shape) const { return text(get(shape)); }
};

/// All of them, in the order of lists that users see.
[[nodiscard]] std::span<const ShapeAxis> shape_axes();
[[nodiscard]] const ShapeAxis& shape_axis(Axis axis);

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
