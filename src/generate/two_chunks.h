#pragma once
// The list of a worker with two stages, written in steps such as "next forward of chunk 0". ZB-V, V-Half and V-Min
// place stages w and 2D-1-w of one replica on worker w: a micro-batch goes down the workers and up again, and ends
// where it started, so the last stage's backward needs no message to begin. In DualPipe the two stages belong to
// different replicas.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

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

/// F, B, I or W of chunk 0 or 1 on its next micro-batch (B and I share a counter). OldestW is the W of the worker's
/// oldest pending I, of either chunk; a rule uses W0 and W1, or OldestW. `And` joins the ops before and after it to a
/// pair.
enum class Step : std::uint8_t { F0, F1, B0, B1, I0, I1, W0, W1, OldestW, And };

/// Writes a worker's ops.
class TwoChunks {
 public:
  TwoChunks(const Chunk& chunk0, const Chunk& chunk1);

  /// Writes the steps `times` times. A step beyond its chunk's last micro-batch writes nothing, so a rule for many
  /// micro-batches also works for fewer.
  void repeat(std::int64_t times, std::initializer_list<Step> steps);

  [[nodiscard]] std::vector<Op> take() { return std::move(ops_); }

 private:
  enum Counter : std::uint8_t { kForward, kBackward, kWeight };
  struct Progress {
    Chunk chunk;
    std::array<std::int64_t, 3> next{};  // [Counter]: next micro-batch
  };

  std::int64_t& next_of(Step step);
  void write(Step step);
  void write_oldest_weight_gradient();

  std::array<Progress, 2> progress_;
  std::vector<Op> ops_;
  std::size_t oldest_ = 0;  // No pending I for OldestW before this op
};

/// Generator::stages_a_worker of these schedules.
[[nodiscard]] inline std::int64_t two_stages(const PipelineShape&) { return 2; }

}  // namespace chimera
