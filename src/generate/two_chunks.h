#pragma once
// Schedules of one replica with two stages on each worker, w and 2D-1-w: a micro-batch goes down the workers and up
// again, and ends where it started, so the last stage's backward needs no message to begin. TwoChunks writes the list
// of such a worker, also for DualPipe (dualpipe.h), whose two stages belong to different replicas.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// ZB-V: the activations of 1F1B, no bubble between a worker's first and last op at equal times.
[[nodiscard]] Schedule zb_v(const PipelineShape& shape);
[[nodiscard]] Generator zb_v_entry();

/// V-Half: about half the activations of 1F1B.
[[nodiscard]] Schedule v_half(const PipelineShape& shape);
[[nodiscard]] Generator v_half_entry();

/// V-Min: about a third of the activations of 1F1B.
[[nodiscard]] Schedule v_min(const PipelineShape& shape);
[[nodiscard]] Generator v_min_entry();

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

/// Writes a worker's ops from steps such as "next forward of chunk 0".
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

}  // namespace chimera
