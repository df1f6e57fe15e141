#pragma once

// Plans the gradient sums of a run with `--reduction canonical`, whose bits do not depend on the schedule. The
// micro-batches of a step are divided into blocks, and the sums of blocks are added in the order of a fixed binary tree
// (runtime/canonical_sums.h executes the plan, and has a picture). The plan says which subtrees each rank computes.
// Also the switch for deterministic kernels, without which equal orders of sums would not give equal bits.

#include <cstdint>
#include <string>

#include "engine/run_shape.h"
#include "runtime/canonical_sums.h"

namespace chimera {

/// Plans a reduction with `blocks` blocks per step (Q; 0: default_reduction_blocks()). Throws ConfigError, with the
/// valid numbers, if the micro-batches of some replica are no whole number of blocks; `what` names the flag or field in
/// the message. Also throws if a stage computes weight gradients out of the order of a replica's micro-batches.
[[nodiscard]] CanonicalReduction canonical_reduction(const RunShape& run, std::int64_t blocks, const std::string& what);

/// Makes PyTorch's kernels deterministic on all threads while any object with `is_on` exists. The destructor of the
/// last one restores the process's settings. A PyTorch op without a deterministic kernel throws c10::Error. (PyTorch
/// can warn instead, but fused attention then stays nondeterministic: sdp_utils.cpp, attention_backward.cu.)
class DeterministicKernels {
 public:
  explicit DeterministicKernels(bool is_on);
  ~DeterministicKernels();
  DeterministicKernels(const DeterministicKernels&) = delete;
  DeterministicKernels& operator=(const DeterministicKernels&) = delete;

 private:
  bool is_on_;
};

}  // namespace chimera
