#pragma once

// Connects a rank with the ranks that it exchanges messages and sums with: over Gloo or, on GPUs, by the accelerator
// library.

#include <chrono>
#include <memory>

#include "core/rendezvous_point.h"
#include "train/setup/job.h"
#include "transport/connection_breaker.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera {

/// A rank's end of the connections, for open_transport().
struct Endpoint {
  RankId rank;
  RendezvousPoint rendezvous;
  Fingerprint compared;
  std::chrono::milliseconds timeout = kGlooDefaultTimeout;
  std::chrono::milliseconds start_up_timeout = kGlooDefaultTimeout;
  std::shared_ptr<ConnectionBreaker> breaker;
};

/// Returns the number of the GPU of a rank, which has this number among the launched ranks.
[[nodiscard]] int gpu_of(const TrainOptions& options, RankId launched);

/// Connects the rank. Collective over all ranks of the job.
[[nodiscard]] std::unique_ptr<Transport> open_transport(const Job& job, Endpoint end);

}  // namespace chimera
