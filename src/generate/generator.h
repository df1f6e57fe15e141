#pragma once

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
  std::int64_t backwards = 0;    // number before its last op, each as long as a backward, for the sums ..
  std::int64_t first_stage = 0;  // .. of this stage and later stages
  // number around the step's end, each as long as both, for all remaining sums
  std::int64_t forwards_and_backwards = 0;
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
  Scale,      ///< how Chimera schedules N > D
  Order,
  Slices,  ///< k
};

struct ShapeAxis {
  Axis axis;
  std::string_view name;     // name of the flag (without dashes) and of the JSON field, such as `pipelines`
  std::string_view symbol;   // symbol in formulas, such as `2f`; empty: formulas use the name
  std::string_view meaning;  // text for --help
  std::int64_t least;        // smallest value
  std::span<const std::string_view> names;  // names of the values from 0 on; empty: values are numbers
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
  std::int64_t usual = 1;  // default value
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

/// An entry of the registry. All functions of a shape are cheap, except generate().
struct Generator {
  std::string name;
  /// Generates the schedule. Throws ConfigError, naming the schedule, if refusal() returns a reason.
  Schedule (*generate)(const PipelineShape& shape) = nullptr;
  /// Returns why the shape has no schedule, with flag and legal values; empty if it has one.
  std::optional<std::string> (*refusal)(const PipelineShape& shape) = nullptr;

  std::string rule;  // how it orders its ops (Markdown)
  std::string constraints;
  std::string closed_form;  // formula of the makespan (or bubble, if stated), without latency and for F <= B
  std::string activations;  // formula of the maximum number of micro-batches in flight on a worker
  std::string source;
  FigureShape figure = {};

  std::vector<TakenAxis> axes = {};
  /// S/D
  std::int64_t (*stages_a_worker)(const PipelineShape& shape) = [](const PipelineShape&) { return std::int64_t{1}; };
  std::int64_t (*replicas)(const PipelineShape& shape) = [](const PipelineShape&) { return std::int64_t{1}; };
  bool synchronous = true;                         // all stages update once, at the step's end
  std::optional<PaperModel> paper = std::nullopt;  // set if equation 1 has a closed form
};

}  // namespace chimera
