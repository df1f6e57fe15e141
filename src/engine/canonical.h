#pragma once

// Canonical reduction of a run: which block each micro-batch is in, and which subtrees of the sum each rank computes
// (runtime/canonical_sums.h executes it). Also the switch for deterministic kernels, without which equal orders of sums
// would not give equal bits.

#include <cstdint>
#include <string>

#include "engine/run_shape.h"
#include "runtime/canonical_sums.h"

namespace chimera {

/// Creates a reduction with `blocks` blocks (Q; 0: default_reduction_blocks()). Throws ConfigError, with the valid
/// numbers, if replicas would not get whole blocks; `what` names the flag or field. Also throws if a stage computes
/// weight gradients out of the order of a replica's micro-batches.
[[nodiscard]] CanonicalReduction canonical_reduction(const RunShape& run, std::int64_t blocks, const std::string& what);

/// Makes PyTorch's kernels deterministic on all threads while any object with `is_on` exists, then restores the
/// process's settings. An op without a deterministic kernel throws c10::Error. A warning instead would leave fused
/// attention nondeterministic (sdp_utils.cpp, attention_backward.cu).
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
