#pragma once

// Connects a rank with the ranks that it exchanges messages and sums with: over Gloo or, on GPUs, by the accelerator
// library.

#include <chrono>

#include "core/rendezvous_point.h"
#include "train/setup/job.h"
#include "transport/connection_breaker.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera {

/// A rank's end of the connections, for open_transport().
struct Endpoint {
  RankId rank;                 // Among all ranks of the job
  RendezvousPoint rendezvous;  // Where the ranks of the job meet
  Fingerprint compared;        // Must be equal on all ranks
  // Limits of a wait for other ranks, and of each step of the rendezvous
  std::chrono::milliseconds timeout = kGlooDefaultTimeout;
  std::chrono::milliseconds start_up_timeout = kGlooDefaultTimeout;
  std::shared_ptr<ConnectionBreaker> breaker;  // Lets another thread break the connections; may be null
};

/// Connects the rank. Collective over all ranks of the job. Throws TransportError if ranks cannot be reached in time,
/// PeerLostError if a rank is lost or another rank has other settings (`compared`) than most, and ConfigError if this
/// rank has them.
[[nodiscard]] std::unique_ptr<Transport> open_transport(const Job& job, Endpoint end);

}  // namespace chimera
