#pragma once

// Start of `evaluate`, `export` and `generate`. Each command calls run_on_model(). With one rank, the command runs in
// this process. With several ranks, this process is the launcher: it starts rank processes with the same command line,
// which call run_on_model() again. Each rank reads only the layers of its own stages.
//
//   run_on_model()  --one rank-->       RankFunction(0, transport of one thread)
//        |  launch()
//        +--> rank processes -> run_on_model() --> RankFunction(rank, Gloo transport)

#include <cstdint>
#include <functional>
#include <string>

#include "commands.h"
#include "transport/transport.h"

namespace chimera::apps {

/// Options of run_on_model(): the model, and how many ranks run it.
struct ModelRunOptions {
  std::string from;  // folder of a model, a checkpoint, or a folder of checkpoints (the newest valid one)
  std::int64_t ranks = 1;
  std::int64_t threads = 0;  // intra-op threads per rank; 0: cores / ranks, at least 1
};

/// Function that runs on each rank: the body of a command. It is not an element of ModelRunOptions.
using RankFunction = std::function<void(RankId rank, Transport& transport)>;

/// Runs the function that `prepare` returns on all ranks, and returns the exit code of the process. `prepare` gets the
/// folder of the model. It runs once in the launcher, before any rank starts, so that it can reject wrong flags, and
/// again in each rank. All ranks use the checkpoint that their launcher found. Throws Error.
[[nodiscard]] int run_on_model(const ModelRunOptions& model, const Invocation& invocation,
                               const std::function<RankFunction(const std::string& folder)>& prepare);

}  // namespace chimera::apps
