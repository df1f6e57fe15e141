#pragma once

#include <cstdint>

#include "core/names.h"

namespace chimera {

/// When a worker of a synchronous schedule launches the sum of a stage's gradients.
/// Source: Li and Hoefler, SC'21, section 3.2.
enum class AllReducePlacement : std::uint8_t {
  Eager,     ///< right after the stage's last backward on that worker
  EagerOpt,  ///< so where the worker has a bubble between that and its last op, else after its last op
  Post,      ///< after the worker's last op
};
template <>
inline constexpr auto kNames<AllReducePlacement> =
    std::to_array<Named<AllReducePlacement>>({{AllReducePlacement::Post, "post"},
                                              {AllReducePlacement::Eager, "eager"},
                                              {AllReducePlacement::EagerOpt, "eager-opt"}});

}  // namespace chimera
