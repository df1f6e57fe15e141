#pragma once

// Gradient sums in shared memory. All members of a host map each other's gradients; each adds one slice and writes it
// to all, so every byte crosses memory a few times instead of a socket. Over several hosts, each member exchanges its
// slice with its counterparts.
//
//   gather addresses -> each adds its slice -> (exchange with other hosts) -> write to members -> sum of failures

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "transport/gloo/group.h"
#include "transport/gloo/sum_memory.h"
#include "transport/transport.h"

namespace chimera {

/// Process groups of a sum. Each member of a host owns a slice, as do its counterparts on other hosts.
struct SumGroups {
  GlooGroup host;                               // members that can map each other's memory
  GlooGroup counterparts;                       // null: one host
  std::vector<std::size_t> places_of_sum = {};  // [member of `counterparts`]: place among all members of the sum
};

/// All-reduce or reduce-scatter in memory shared by a host's members. Once all have deposited, each member adds its
/// slice, sums it with its counterparts, and writes it into all members' gradients; in a reduce-scatter it sends each
/// counterpart its elements. The groups' threads or the last depositor do this. Tensors outside shared memory are
/// copied. The constructor does not wait; it throws the errors of Gloo and StagingMemory. A rank's next sum over the
/// same groups must start after wait(). Fault points: handed-in, sum (after all deposits).
class SharedSum {
 public:
  /// Without an order, adds in ascending order within a host, then in Gloo's order of hosts; a reduce-scatter adds
  /// hosts in ascending order. An order is possible on one host only.
  SharedSum(const SumGroups& groups, std::shared_ptr<SumMemory> memory, GradientSum sum,
            std::chrono::milliseconds timeout);
  /// Returns once all members' gradients hold their sums. If a member cannot add its slice, it throws the cause, and
  /// the others throw PeerLostError. Throws Gloo's errors if a member is lost.
  void wait();
  /// See Pending::call_when_done().
  void call_when_done(std::function<void()> done);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace chimera
