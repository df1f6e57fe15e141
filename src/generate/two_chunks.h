#pragma once
// What ZB-V, DualPipe and DualPipeV have in common: two virtual stages (chunks) on every worker, and a rule for each
// worker's order that says only "the next forward of chunk 0".

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// A stage of a replica, and the micro-batches that it runs: `count` from `first` on.
struct Chunk {
  ReplicaId replica = {};
  StageId stage = {};
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// F, B, I or W of chunk 0 or 1 on the next micro-batch there (B and I share a counter); or the weight gradient of the
/// worker's oldest I, of either chunk, that OldestW has not had yet. A rule uses W0 and W1, or OldestW. And stands
/// between the two of a pair, both of which write an op.
enum class Step : std::uint8_t { F0, F1, B0, B1, I0, I1, W0, W1, OldestW, And };

/// Writes one worker's ops by such a rule.
class TwoChunks {
 public:
  TwoChunks(const Chunk& chunk0, const Chunk& chunk1);

  /// The steps in turn, `times` over. A step beyond the last of its chunk's micro-batches counts, but writes nothing:
  /// so a rule for many micro-batches serves for fewer, at a cost of what it writes.
  void repeat(std::int64_t times, std::initializer_list<Step> steps);

  /// What has been written; leaves nothing.
  [[nodiscard]] std::vector<Op> take() { return std::move(ops_); }

 private:
  enum Counter : std::uint8_t { kForward, kBackward, kWeight };
  struct Progress {
    Chunk chunk;
    std::array<std::int64_t, 3> next{};  // [Counter]: micro-batches before this one have been written
  };

  std::int64_t& next_of(Step step);
  void write(Step step);
  void write_oldest_weight_gradient();

  std::array<Progress, 2> progress_;
  std::vector<Op> ops_;
  std::size_t oldest_ = 0;  // no op before this one is an I that waits for OldestW
};

}  // namespace chimera
