#pragma once
// A Generator describes one kind of schedule, such as 1f1b, and makes schedules of any legal shape: D workers, N
// micro-batches, and parameters that only some schedules have. The program derives from it everything that users see
// about the schedule: flags and their errors, `chimera schedules`, docs/schedules.md (tools/print_schedules_page),
// plans, and predictions by equation 1 of the Chimera paper. A source in this folder defines a function x_entry() for
// each schedule, which returns the Generator; entries.h declares these functions, and generators() in registry.cc lists
// the results.

#include <functional>
#include <string_view>

#include "schedule/schedule.h"

namespace chimera {

/// C_f and C_b of equation 1 (Li and Hoefler, SC'21, section 3.4): numbers of forwards and backwards on the critical
/// path of a step. The equation predicts the time of a step from them.
struct CriticalOps {
  std::int64_t forwards = 0;
  std::int64_t backwards = 0;
  friend bool operator==(const CriticalOps&, const CriticalOps&) = default;
};

/// Bubbles of a worker in which all-reduces can run without extending the step. (The paper calls them free regions.)
struct FreeRegions {
  std::int64_t backwards = 0;               // Bubbles before the worker's last op, each as long as a backward
  std::int64_t first_stage = 0;             // `backwards` can hide only all-reduces of this stage and later stages
  std::int64_t forwards_and_backwards = 0;  // Bubbles between two steps, each as long as a forward and a backward
};

/// PaperModel::free_regions of schedules without such bubbles.
inline FreeRegions no_free_regions(const PipelineShape&, std::int64_t) { return {}; }

/// The functions of equation 1 that depend on the schedule. They are for one stage per worker and whole backwards.
/// plan/equation_one.h evaluates the equation.
struct PaperModel {
  /// Returns C_f and C_b. `ratio` is the time of a backward divided by the time of a forward, at least 1. With
  /// ScaleMethod::Halving, they count micro-batches of half the size. The paper has no counts for N < D, or if N is not
  /// a multiple of the micro-batches that the schedule repeats; they are then the counts of a simulation.
  CriticalOps (*critical_ops)(const PipelineShape& shape, double ratio) = nullptr;
  /// Returns the bubbles of a worker, 0 .. D - 1.
  FreeRegions (*free_regions)(const PipelineShape& shape, std::int64_t worker) = no_free_regions;
};

/// Parameters of a shape besides D and N. Sweeps and plans vary them, hence "axis". PipelineShape has a field for each.
enum class Axis : std::uint8_t {
  Pipelines,  ///< Number of pipelines through the same workers; 2f in formulas
  Chunks,     ///< Stages of a pipeline on each worker; v in formulas
  Waves,      ///< Passes of a pipeline down and up the workers; w in formulas
  Scale,      ///< How Chimera schedules N > D (ScaleMethod)
  Order,      ///< Rule that orders the ops (--order)
  Slices,     ///< Parts of a micro-batch's token sequence; k in formulas
};

/// An axis as users see it: its flag, its values and its help text.
struct ShapeAxis {
  Axis axis;
  std::string_view name;     // Name of the flag (without dashes) and of the JSON field, such as `pipelines`
  std::string_view symbol;   // Symbol in formulas, such as `2f`; empty if they use the name
  std::string_view meaning;  // Text for --help
  std::int64_t least;        // Smallest value
  std::span<const std::string_view> names;    // Names of the values from 0 on; empty if values are numbers
  std::int64_t (*get)(const PipelineShape&);  // Reads the field of the shape
  void (*set)(PipelineShape&, std::int64_t);  // Writes it

  [[nodiscard]] std::string flag() const { return "--" + std::string(name); }
  /// Returns whether values are numbers rather than names.
  [[nodiscard]] bool is_number() const { return names.empty(); }
  /// Returns a value as text for the flag: `4`, `doubling`.
  [[nodiscard]] std::string text(std::int64_t value) const;
  [[nodiscard]] std::string text(const PipelineShape& shape) const { return text(get(shape)); }
};

/// Returns all axes, in the order shown to users.
[[nodiscard]] std::span<const ShapeAxis> shape_axes();
/// Returns the description of one axis.
[[nodiscard]] const ShapeAxis& shape_axis(Axis axis);

/// An axis that a schedule supports, with its default and useful values.
struct SupportedAxis {
  Axis axis = Axis::Pipelines;
  std::int64_t usual = 1;  // Default value
  /// Returns the values that the planner tries for the D and N of `shape`.
  std::function<std::vector<std::int64_t>(const PipelineShape& shape)> planned;
  /// Whether only the costs of ops decide which value is best. Then, if the user sets no value, commands that have
  /// costs try all planned values.
  bool by_costs = false;
};

/// A kind of schedule. All functions of a shape are cheap, except make() and generate(). Formulas use the symbols of
/// docs/schedules.md: D workers, N micro-batches, and the times of ops on all stages that one replica of the model has
/// on a worker: F of a forward, B of a backward, I and W of its two parts (input and weight gradient).
struct Generator {
  std::string name;  // As users write it: `chimera-zb`
  /// Makes the schedule of a shape that find_shape_error() accepts, without a name. Callers use generate(), which calls
  /// it.
  Schedule (*make)(const PipelineShape& shape) = nullptr;
  /// Returns why this schedule does not exist for the shape, with flag and legal values; nothing if it exists.
  std::optional<std::string> (*find_shape_error)(const PipelineShape& shape) = nullptr;

  std::string rule;         // How it places stages and orders ops, and what follows from it (Markdown)
  std::string constraints;  // The shapes that find_shape_error() accepts, as text
  std::string closed_form;  // Formula of the makespan (or bubble, if stated), without latency and for F <= B
  std::string activations;  // Formula of the maximum number of micro-batches in flight on a worker
  std::string source;       // Paper that describes the schedule
  PipelineShape figure = {.stages = 4, .micro_batches = 8};  // D and N of the picture in docs and tests/golden/

  std::vector<SupportedAxis> axes = {};  // The parameters that the schedule has besides D and N
  /// Returns the number of stages of a replica on each worker.
  std::int64_t (*stages_per_worker)(const PipelineShape& shape) = [](const PipelineShape&) { return std::int64_t{1}; };
  /// Returns the number of replicas of the model.
  std::int64_t (*replicas)(const PipelineShape& shape) = [](const PipelineShape&) { return std::int64_t{1}; };
  bool synchronous = true;                         // Whether all stages update once, at the step's end
  std::optional<PaperModel> paper = std::nullopt;  // Nothing if equation 1 does not apply to this schedule

  /// Returns the schedule. Throws ConfigError, `schedule NAME: reason`, if find_shape_error() returns a reason.
  [[nodiscard]] Schedule generate(const PipelineShape& shape) const;
};

}  // namespace chimera
