#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "schedule/op.h"
#include "schedule/schedule.h"

namespace chimera {

/// A forward whose activations are in host memory until its backward; positions in the worker's list.
struct OffloadedForward {
  std::size_t forward = 0;
  std::size_t backward = 0;  // B or I
  std::size_t load = 0;      // the op or pair before the backward; the copy to the device starts before it
};

/// Returns the offloaded forwards of the worker's `stages`, in the order of their backwards. A forward keeps its
/// activations on the device if fewer than two ops (or pairs that run together) come between it and its backward.
[[nodiscard]] std::vector<OffloadedForward> offloaded_forwards(const std::vector<Op>& ops,
                                                               const std::set<StageId>& stages, Pairs pairs);

/// Returns Program::most_on_device: activations of the running op or pair and of the next backward.
[[nodiscard]] constexpr std::int64_t most_on_device(Pairs pairs) { return pairs == Pairs::Together ? 3 : 2; }

}  // namespace chimera
