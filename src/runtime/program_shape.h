#pragma once
// What all workers of a program know of it besides its instructions.

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "runtime/block_sums.h"
#include "schedule/rank_layout.h"
#include "transport/message.h"

namespace chimera {

/// What all executors of a program need to know of it.
struct ProgramShape {
  std::int64_t micro_batches = 0;
  RankLayout ranks;     // which the transport connects: the program's workers in every data-parallel group
  WorkerGroups groups;  // who sums which gradients; the first of each, in data-parallel group 0, answers for them
  GroupId group = {};   // data-parallel, the executor's own
  std::vector<std::string> parameters = {};  // of the model, ascending: the order in which squared norms are added;
                                             // empty: that of the stages
  const CanonicalReduction* canonical = nullptr;  // how gradients are added, borrowed; null: as they come
  std::vector<std::int64_t> positions = {};       // canonical: [micro-batch] where it stands in the step's samples
  std::vector<TensorSpec> boundaries = {};  // [S - 1] what stage s hands to s + 1, and the gradient of that, where
                                            // they differ from boundary to boundary
  bool tied = false;                        // stage 0 and the last share a matrix
  std::int64_t updates = 1;                 // of a stage in a step
  bool counts_cpu_time = false;             // whether op times have cpu_seconds, at the cost of two system calls an op

  [[nodiscard]] std::int64_t stages() const { return static_cast<std::int64_t>(groups.size()) - (tied ? 1 : 0); }
  /// The rank of a worker of the executor's own data-parallel group.
  [[nodiscard]] RankId rank(WorkerId worker) const { return ranks.rank({group, worker}); }
};

}  // namespace chimera
