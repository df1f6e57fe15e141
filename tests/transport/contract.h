#pragma once
// The contract of every multi-worker Transport, as scenarios with a part for each worker. Threads run it in
// thread_transport_test.cc, processes in gloo_test_rank.cc.

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace chimera::contract {

/// All scenarios use this many workers. The stages: two that two workers each share, as in Chimera with D = 4; one that
/// all workers hold; one that only worker 0 holds.
constexpr int kWorkers = 4;
RankGroups groups();

struct Scenario {
  std::string name;
  /// The part of one worker. Throws std::runtime_error if the transport breaks the contract.
  std::function<void(Transport&, RankId me)> play;
};

/// Prints the name for GoogleTest.
inline std::ostream& operator<<(std::ostream& out, const Scenario& scenario) { return out << scenario.name; }

const std::vector<Scenario>& scenarios();

}  // namespace chimera::contract
