#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "schedule/op.h"
#include "schedule/schedule.h"

namespace chimera {

/// A forward whose activations are in host memory until its backward. Positions are in the worker's list of ops.
struct OffloadedForward {
  std::size_t forward = 0;
  std::size_t backward = 0;  // B or I
  std::size_t load = 0;      // the copy to the device starts before this op: the op or pair before the backward
};

/// Returns the offloaded forwards of the worker's `stages`, in the order of their backwards. A forward keeps its
/// activations on the device if fewer than two ops (or pairs that run together) come between it and its backward.
[[nodiscard]] std::vector<OffloadedForward> offloaded_forwards(const std::vector<Op>& ops,
                                                               const std::set<StageId>& stages, Pairs pairs);

/// Returns Program::most_on_device of offloaded_forwards(): the activations of the running op or pair, and those of the
/// next op.
[[nodiscard]] constexpr std::int64_t most_on_device(Pairs pairs) { return pairs == Pairs::Together ? 3 : 2; }

}  // namespace chimera
