#pragma once

// Plans the gradient sums of a run with `--reduction canonical`, whose bits do not depend on the schedule or the number
// of ranks. The micro-batches of a step are divided into blocks, and the sums of blocks are added in the order of a
// fixed binary tree. The plan says which subtrees each rank computes; runtime/gradient_sums.h executes it, and has a
// picture. Such a run also needs DeterministicKernels, because equal orders of sums give equal bits only if the kernels
// do.

#include "engine/run_shape.h"
#include "runtime/worker_context.h"

namespace chimera {

/// Plans a reduction with `blocks` blocks per step; 0: the largest power of two, at most 64, that divides the step's
/// micro-batches. Throws ConfigError, with the valid numbers, if the micro-batches of some replica do not make whole
/// blocks; `what` is the name of the flag or field for the message. Also throws it if a stage computes weight gradients
/// in another order than the order of a replica's micro-batches in the step's data.
[[nodiscard]] CanonicalReduction canonical_reduction(const RunShape& run, std::int64_t blocks, const std::string& what);

/// Makes PyTorch's kernels deterministic on all threads while any object with `is_on` exists. The destructor of the
/// last one restores the process's settings. A PyTorch op without a deterministic kernel throws c10::Error. (PyTorch
/// can warn instead, but fused attention then stays nondeterministic: sdp_utils.cpp, attention_backward.cu.)
class DeterministicKernels {
 public:
  explicit DeterministicKernels(bool is_on);
  ~DeterministicKernels();
  DeterministicKernels& operator=(DeterministicKernels&&) = delete;

 private:
  bool is_on_;
};

}  // namespace chimera
