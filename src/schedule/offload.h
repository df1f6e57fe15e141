#pragma once
// Which activations move to host memory between their forward and their backward (`--offload`). Example, with ops of
// one stage on a worker: F0 F1 B0 F2 B1 B2. The activations of F1 leave the device after F1 and return before F2, the
// op before B1. Those of F0 and F2 stay on the device, because their backwards come too soon, after a single op.

#include <cstddef>
#include <set>

#include "schedule/op.h"
#include "schedule/schedule.h"

namespace chimera {

/// A forward whose activations are in host memory until its backward. The members are positions in the worker's list of
/// ops.
struct OffloadedForward {
  std::size_t forward = 0;   // After it, the copy to host memory starts
  std::size_t backward = 0;  // The whole backward or input gradient that needs the activations
  std::size_t load = 0;      // The op (or first op of a pair) before `backward`; the copy back starts before it
};

/// Returns the offloaded forwards in a worker's list `ops`, in the order of their backwards. Only forwards of `stages`
/// are offloaded. A forward keeps its activations on the device if fewer than two ops (or pairs that run together) come
/// between it and its backward.
[[nodiscard]] std::vector<OffloadedForward> offloaded_forwards(const std::vector<Op>& ops,
                                                               const std::set<StageId>& stages, Pairs pairs);

/// Returns the number of micro-batches whose activations of offloaded stages are on the device at once
/// (Program::most_on_device in schedule/program.h): those of the running op (or pair), and of the next backward.
[[nodiscard]] constexpr std::int64_t most_on_device(Pairs pairs) { return pairs == Pairs::Together ? 3 : 2; }

}  // namespace chimera
