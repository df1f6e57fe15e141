#pragma once
// What ranks on GPUs make sure of before they are connected, and what NCCL is told about where to listen.

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "core/rendezvous_point.h"
#include "transport/fingerprint.h"

namespace chimera {

/// What a rank says of itself where the ranks meet.
struct Attendee {
  int rank = 0;
  Fingerprint fingerprint = {};  ///< empty: nobody compares
  std::string gpu = {};          ///< its GpuTraits::uuid; empty: nobody compares
};

/// To be called by all ranks, once all have come. Compares what they say of themselves. Throws what require_equal()
/// throws where they were started differently; ConfigError on the ranks that have one GPU together, PeerLostError on
/// the others.
void compare_attendees(c10d::Store& store, const Attendee& own, int world_size);

/// To be called by all ranks: the least of the numbers that they give.
[[nodiscard]] int least_of_all(c10d::Store& store, int rank, int number, int world_size);

/// Variables of the environment, by name.
using VariableList = std::vector<std::pair<std::string, std::string>>;

/// What CUDA reads when it starts, for processes whose GPUs wait for each other: every kernel is loaded then, as to
/// load one later may wait for all that is under way on the GPU (source: CUDA Programming Guide, Lazy Loading,
/// Potential Hazards), a receive among it whose sender waits likewise; and streams have hardware queues of their own.
[[nodiscard]] VariableList cuda_variables();

/// The variables that NCCL reads, so that it listens where the ranks meet and nowhere else (on one host on the
/// loopback interface, on several on that of own_interface()), and connects what collectives need with a communicator
/// instead of at their first call. Variables that the user has set come before them.
[[nodiscard]] VariableList nccl_variables(const MeetingPoint& meeting);

/// Sets those in this process's environment that the user has not set. No other thread may read it meanwhile.
void set_unless_set(const VariableList& variables);

}  // namespace chimera
