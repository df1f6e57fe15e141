#pragma once
// What a cut into stages must keep to: linear constraints on what the blocks of the stages cost and hold.

#include <array>
#include <compare>
#include <cstddef>
#include <utility>
#include <vector>

#include "plan/balance.h"
#include "schedule/schedule.h"

namespace chimera {

/// The fields of LayerLoad, in their order.
inline constexpr std::size_t kLoads = 7;
using Loads = std::array<double, kLoads>;
[[nodiscard]] Loads loads_of(const LayerLoad& layer);
[[nodiscard]] double product(const Loads& factors, const Loads& loads);

/// Something of one worker that is limited: the time of its ops, or the bytes that it holds at one of them. It is base
/// plus, over stages, the factors times the sum of the loads of the stage's blocks.
struct Constraint {
  bool time = false;
  double base = 0;                                          // of embedding, head and the stages' inputs
  std::vector<std::pair<std::size_t, Loads>> factors = {};  // of the stages that it depends on, ascending
  friend std::partial_ordering operator<=>(const Constraint&, const Constraint&) = default;
};

/// The constraints of all workers, each once. Bytes are limited at the ops where no other has more of every stage.
[[nodiscard]] std::vector<Constraint> time_constraints(const Schedule& schedule, const ModelLoads& loads,
                                                       bool recompute);
[[nodiscard]] std::vector<Constraint> memory_constraints(const Schedule& schedule, const ModelLoads& loads,
                                                         bool recompute);

}  // namespace chimera
