#pragma once
// Ranks as threads of one process: tensors are handed over by reference, nothing is copied.

#include <memory>
#include <string>

#include "transport/transport.h"

namespace chimera {

/// Connects the ranks 0 .. ranks-1 of one process. It must outlive the transports and what they have under way. A send
/// completes at once. Sums are formed once, in ascending order of ranks: every rank gets the same bits, and the same in
/// every run. A received tensor shares the sender's memory, so neither side may write to it.
class ThreadHub {
 public:
  ThreadHub(int ranks, RankGroups groups);
  ~ThreadHub();
  /// The end of one rank, to be used by one thread. At most one end for each rank.
  /// Its waits throw TransportError where what arrives is not of the expected sizes and type.
  [[nodiscard]] std::unique_ptr<Transport> transport(RankId rank);
  /// Ends all communication, from any thread: every wait() and all_sum(), blocked now or called later, throws
  /// PeerLostError with `why`. To be called when a rank fails, or the others would wait for it for ever. The first
  /// reason stays.
  void close(const std::string& why);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace chimera
