#pragma once

#include <cstddef>
#include <optional>

namespace chimera {

/// How far a worker has come in a run on shared cores (shared_cores.h).
struct RunningWorker {
  std::size_t step = 0;
  std::size_t position = 0;  // of its next op
  double free = 0;           // since when it has nothing running
  bool busy = false;
  std::size_t sending = 0;                                 // blocking messages whose arrival is not known yet
  double sent = 0;                                         // when the last of those that are known arrives
  std::size_t launched = 0;                                // sums of this step
  bool ended_ops = false;                                  // of this step, so that all are launched
  std::optional<std::size_t> update_after = std::nullopt;  // asynchronous: the op whose update is to come
  double update_start = 0;                                 // of it
  std::optional<double> recomputed = std::nullopt;         // since when its next op's forward runs again, or did
};

}  // namespace chimera
