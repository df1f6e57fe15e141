#pragma once
// What a pipeline's shape has besides D and N, in one table. Commands read their flags from it, pictures and plans
// their words, so that a parameter is wired here and in PipelineShape, nowhere else.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "schedule/schedule.h"

namespace chimera {

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

}  // namespace chimera
