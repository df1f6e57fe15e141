#pragma once
// Writes the list of ops of a worker with two stages (chunks 0 and 1), in steps such as "next forward of chunk 0". The
// generators of the schedules ZB-V, V-Half, V-Min, DualPipe and DualPipeV use it. In DualPipe, the two stages belong to
// different replicas of the model. In the others, a micro-batch goes down the workers and up again, and ends on the
// worker where it started: with D workers, worker w has stages w and 2D-1-w. A *step* here is one op to write, not a
// training step.

#include <array>
#include <initializer_list>
#include <utility>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// A stage of a replica, with `count` micro-batches from `first` on.
struct Chunk {
  ReplicaId replica = {};
  StageId stage = {};
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// One op to write: forward (F), backward (B), input gradient (I) or weight gradient (W) of chunk 0 or 1, for its next
/// micro-batch (B and I share a counter). OldestW is the W of the oldest I, of either chunk, that has no W yet. A
/// generator uses either W0 and W1, or OldestW. `And` makes the ops before and after it a pair, which may overlap.
enum class ChunkStep : std::uint8_t { F0, F1, B0, B1, I0, I1, W0, W1, OldestW, And };

/// Writes the ops of one worker.
class TwoChunks {
 public:
  TwoChunks(const Chunk& chunk0, const Chunk& chunk1);

  /// Writes the steps `times` times. A step beyond its chunk's last micro-batch writes nothing, so a rule for many
  /// micro-batches also works for fewer.
  void repeat(std::int64_t times, std::initializer_list<ChunkStep> steps);

  /// Returns the written ops. Call it once, after the last repeat().
  [[nodiscard]] std::vector<Op> take() { return std::move(ops_); }

 private:
  enum Counter : std::uint8_t { kForward, kBackward, kWeight };
  struct Progress {
    Chunk chunk;
    std::array<std::int64_t, 3> next{};  // [Counter]: next micro-batch
  };

  std::int64_t& next_of(ChunkStep step);
  void write(ChunkStep step);
  void write_oldest_weight_gradient();

  std::array<Progress, 2> progress_;
  std::vector<Op> ops_;
  std::size_t oldest_ = 0;  // Before this index of ops_, every I has its W
};

/// Generator::stages_per_worker of these schedules.
[[nodiscard]] inline std::int64_t two_stages(const PipelineShape&) { return 2; }

}  // namespace chimera
