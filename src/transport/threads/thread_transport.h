#pragma once

// The transport (transport.h) between ranks that are threads of one process. Each ordered pair of ranks has a queue of
// messages, which are passed by reference. To sum the gradients of a parameter group, its ranks deposit them; the last
// rank that calls wait() adds them for all. `--transport threads`, the Python package and tests use this transport,
// through rank_threads.h.
//
//   rank 0 --queue 0->1--> rank 1        members deposit gradients -> one adds -> all return from wait()

#include <memory>
#include <string>

#include "transport/transport.h"

namespace chimera {

/// Connects ranks 0 .. ranks-1 as threads of a process. Must outlive the transports and their pending operations. Sends
/// complete at once. A received tensor shares the sender's memory, so neither side may write to it. Sums add in
/// ascending order of ranks.
class ThreadHub {
 public:
  /// `groups` has, for each parameter group, the ranks that sum its gradients (schedule/rank_layout.h).
  ThreadHub(int ranks, RankGroups groups);
  ~ThreadHub();
  /// Returns the endpoint of a rank. Call it at most once for each rank. Its waits throw TransportError if a message
  /// has unexpected sizes or type.
  [[nodiscard]] std::unique_ptr<Transport> transport(RankId rank);
  /// Makes blocked and later waits throw PeerLostError with the first `why`. Call it if a rank fails. Thread-safe.
  void close(const std::string& why);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace chimera
