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
  // The two limits and the breaker are as in GlooOptions and NcclOptions
  std::chrono::milliseconds timeout = kGlooDefaultTimeout;
  std::chrono::milliseconds start_up_timeout = kGlooDefaultTimeout;
  std::shared_ptr<ConnectionBreaker> breaker;  // May be null
};

/// Connects the rank. Collective over all ranks of the job. Throws as connect_gloo() or Accelerator::connect() does.
[[nodiscard]] std::unique_ptr<Transport> open_transport(const Job& job, Endpoint end);

}  // namespace chimera
