#pragma once
// The description of a schedule, from which everything that users see about it is made: its flags and their errors,
// `chimera schedules`, docs/schedules.md (tools/print_schedules_page), plans and equation 1. A source of this room
// defines a function x_entry() for each schedule; entries.h declares it, and generators() in registry.cc lists it. The
// rule is written once, in the entry: as text for people, and as `make` for the program.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// C_f and C_b of equation 1 (Li and Hoefler, SC'21, section 3.4): forwards and backwards on a step's critical path.
struct CriticalOps {
  std::int64_t forwards = 0;
  std::int64_t backwards = 0;
  friend bool operator==(const CriticalOps&, const CriticalOps&) = default;
};

/// Bubbles of a worker that hide its all-reduces.
struct FreeRegions {
  std::int64_t backwards = 0;               // Number before its last op, each as long as a backward, ..
  std::int64_t first_stage = 0;             // .. which hide the sums of this stage and later stages
  std::int64_t forwards_and_backwards = 0;  // Number around the step's end, each as long as both, for the other sums
};

inline FreeRegions no_free_regions(const PipelineShape&, std::int64_t) { return {}; }

/// Equation 1 of a schedule with one stage per worker and whole backwards.
struct PaperModel {
  /// Returns C_f and C_b. `ratio` is B_t / F_t, at least 1. Halving counts half micro-batches. An incomplete unit and N
  /// < D count as simulated.
  CriticalOps (*critical_ops)(const PipelineShape& shape, double ratio) = nullptr;
  FreeRegions (*free_regions)(const PipelineShape& shape, std::int64_t worker) = no_free_regions;
};

/// Parameters of a shape besides D and N.
enum class Axis : std::uint8_t {
  Pipelines,  ///< 2f
  Chunks,     ///< v
  Waves,      ///< w
  Scale,      ///< How Chimera schedules N > D
  Order,
  Slices,  ///< k
};

struct ShapeAxis {
  Axis axis;
  std::string_view name;     // Name of the flag (without dashes) and of the JSON field, such as `pipelines`
  std::string_view symbol;   // Symbol in formulas, such as `2f`; empty if they use the name
  std::string_view meaning;  // Text for --help
  std::int64_t least;        // Smallest value
  std::span<const std::string_view> names;  // Names of the values from 0 on; empty if values are numbers
  std::int64_t (*get)(const PipelineShape&);
  void (*set)(PipelineShape&, std::int64_t);

  [[nodiscard]] std::string flag() const { return "--" + std::string(name); }
  [[nodiscard]] bool is_number() const { return names.empty(); }
  /// Returns a value as the flag takes it: `4`, `doubling`.
  [[nodiscard]] std::string text(std::int64_t value) const;
  [[nodiscard]] std::string text(const PipelineShape& shape) const { return text(get(shape)); }
};

/// Returns all axes, in the order shown to users.
[[nodiscard]] std::span<const ShapeAxis> shape_axes();
[[nodiscard]] const ShapeAxis& shape_axis(Axis axis);

/// How a schedule takes an axis.
struct TakenAxis {
  Axis axis = Axis::Pipelines;
  std::int64_t usual = 1;  // Default value
  /// Returns the values that a planner tries for the D and N of `shape`.
  std::function<std::vector<std::int64_t>(const PipelineShape& shape)> planned;
  /// Whether commands with costs try all planned values if the user gives none, because the costs alone decide.
  bool by_costs = false;
};

/// D and N of the schedule's picture in docs and tests/golden/.
struct FigureShape {
  std::int64_t stages = 4;
  std::int64_t micro_batches = 8;
};

/// An entry of the registry. All functions of a shape are cheap, except make() and generate(). Formulas use the symbols
/// of docs/schedules.md: D workers, N micro-batches, stage s, and F, I, W and B for the times of a worker's whole
/// share.
struct Generator {
  std::string name;  // As users write it: `chimera-zb`
  /// Makes the schedule of a shape that refusal() accepts, except its name. Callers use generate().
  Schedule (*make)(const PipelineShape& shape) = nullptr;
  /// Returns why the shape has no schedule, with flag and legal values; empty if it has one.
  std::optional<std::string> (*refusal)(const PipelineShape& shape) = nullptr;

  std::string rule;         // How it places stages and orders ops, and what follows from it (Markdown)
  std::string constraints;  // The shapes that refusal() accepts
  std::string closed_form;  // Formula of the makespan (or bubble, if stated), without latency and for F <= B
  std::string activations;  // Formula of the maximum number of micro-batches in flight on a worker
  std::string source;
  FigureShape figure = {};

  std::vector<TakenAxis> axes = {};
  /// Returns the number of stages of a replica on each worker.
  std::int64_t (*stages_a_worker)(const PipelineShape& shape) = [](const PipelineShape&) { return std::int64_t{1}; };
  std::int64_t (*replicas)(const PipelineShape& shape) = [](const PipelineShape&) { return std::int64_t{1}; };
  bool synchronous = true;                         // All stages update once, at the step's end
  std::optional<PaperModel> paper = std::nullopt;  // Set if equation 1 has a closed form

  /// Returns the schedule. Throws ConfigError, `schedule NAME: reason`, if refusal() returns a reason.
  [[nodiscard]] Schedule generate(const PipelineShape& shape) const;
};

}  // namespace chimera
