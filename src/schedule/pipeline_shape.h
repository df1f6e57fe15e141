#pragma once
// The parameters from which a generator (generate/generator.h) makes a schedule: numbers of workers and micro-batches,
// and choices that only some schedules have.

#include "core/choices.h"

namespace chimera {

/// How Chimera schedules N micro-batches on D workers if N > D (Li and Hoefler, SC'21, section 3.5). A *unit* is a
/// complete schedule of some micro-batches, which is repeated.
enum class ScaleMethod : std::uint8_t {
  Direct,    ///< Units of D micro-batches, one after the other
  Doubling,  ///< Units of 2D micro-batches, with two forwards before each backward
  Halving,   ///< Like Doubling, but with twice as many micro-batches of half the size
};
template <>
inline constexpr auto kNames<ScaleMethod> = in_order<ScaleMethod>("direct", "doubling", "halving");

/// The rule that orders the ops, for generators that have two rules (--order).
enum class OpOrder : std::uint8_t {
  Auto,     ///< Deepest if PipelineShape has several chunks, one slice, and a multiple of D micro-batches; else Slots
  Slots,    ///< Each op has a time slot in a regular pattern
  Deepest,  ///< A worker first runs the op of the micro-batch that has passed most stages
};
template <>
inline constexpr auto kNames<OpOrder> = in_order<OpOrder>("auto", "slots", "deepest");

/// The parameters from which a generator makes a schedule. Each schedule takes D, N and some of the others
/// (generate/generator.h). `stages` counts workers, as --stages does. Schedule::stages is a multiple of it if a worker
/// holds several stages of a replica.
struct PipelineShape {
  std::int64_t stages = 0;         // D: workers of a pipeline
  std::int64_t micro_batches = 0;  // N: micro-batches per step, all directions together
  std::int64_t pipelines = 2;      // 2f: pipelines of Chimera, half of them down the workers and half up
  std::int64_t chunks = 1;         // v: stages of a replica on each worker (virtual stages)
  std::int64_t waves = 1;          // w: how often the stages of the schedule `hanayo` go down the workers and up again
  ScaleMethod scale = ScaleMethod::Direct;
  OpOrder order = OpOrder::Auto;
  std::int64_t slices = 1;  // k: slices of a micro-batch
};

}  // namespace chimera
