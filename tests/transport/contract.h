#pragma once
// What every Transport between several workers must do, as scenarios that each worker plays its part in: run by
// threads (thread_transport_test.cc) and by processes (gloo_test_rank.cc).

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace chimera::contract {

/// All scenarios are for this many workers, and these holders of each stage: two stages shared by two workers each, as
/// in Chimera with D = 4; one that all hold; one that worker 0 holds alone.
constexpr int kWorkers = 4;
RankGroups groups();

struct Scenario {
  std::string name;
  /// The part of one worker. Throws std::runtime_error where the transport breaks the contract.
  std::function<void(Transport&, RankId me)> play;
};

/// How GoogleTest names a scenario.
inline std::ostream& operator<<(std::ostream& out, const Scenario& scenario) { return out << scenario.name; }

const std::vector<Scenario>& scenarios();

}  // namespace chimera::contract
