#pragma once
// How much of the machine others used while something was measured.

#include <chrono>
#include <cstdint>

namespace chimera {

/// Counts from its construction on. Linux only, as the rest.
class CompetingLoad {
 public:
  CompetingLoad();
  /// The share of all cores' time, 0 .. 1, that went to other processes than this one and its children (waited for by
  /// now), or to other machines on the same host.
  [[nodiscard]] double share() const;

 private:
  double busy_;  // seconds of all cores
  double own_;   // seconds of this process and its children
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace chimera
