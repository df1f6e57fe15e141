#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// ZB-V: 2D stages that go down the workers and up again, so worker w holds stages w and 2D-1-w. Split backward. Any D
/// and N, else ConfigError. N < 2D-1 has the order of 2D-1 micro-batches without the missing ones.
///
/// For N >= 2D-1, I >= F and I >= W (times of a worker's whole share) the makespan is N(F+I+W) + (D-1) max(I/2, I-W).
/// The longest bubble between a worker's first and last op is max((D-1)(I-W), (D-1)(I-F)/2). Each worker holds D stage
/// units (2N stages for N < D). Source: Qi et al., NeurIPS'24 (Pipeline parallelism with controllable memory).
[[nodiscard]] Schedule zb_v(const PipelineShape& shape);

[[nodiscard]] Generator zb_v_entry();

/// V-Half: a wave_pattern() with about half of 1F1B's activations. Any D and N, else ConfigError. For F = I = W = 1 (of
/// a worker's whole share) and enough micro-batches, a worker waits 7D/4 - 1 for even D, 7(D-1)/4 for odd, and holds at
/// most (D+2) div 2 stage units. Other times do not slow the steady state if W + 2I >= 2F and W + 2F >= 2I. Source: as
/// zb_v().
[[nodiscard]] Schedule v_half(const PipelineShape& shape);

[[nodiscard]] Generator v_half_entry();

/// V-Min: a wave_pattern() with about a third of 1F1B's activations. Any D and N, else ConfigError. For F = I = W = 1
/// (of a worker's whole share) and enough micro-batches, a worker waits 2D - 5/2, or 2D - 3/2 if 3 divides D, and holds
/// at most (D+4) div 3 stage units. Unequal times and latency slow it down, because all ops of a micro-batch are on one
/// path. Source: as zb_v().
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
  std::size_t oldest_ = 0;  // no pending I for OldestW before this op
};

}  // namespace chimera
