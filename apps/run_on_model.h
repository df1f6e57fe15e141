#pragma once

// How `evaluate`, `export` and `generate` start. They run a model on one or several processes (ranks), each with
// some of the layers. Each command calls run_on_model(). With one rank, the command runs in this process. With
// several ranks, this process is the launcher: it starts rank processes with the same command line, which call
// run_on_model() again. Each rank reads only its own layers.
//
//   run_on_model()  --one rank-->       RankFunction(0, transport of one thread)
//        |  launch()
//        +--> rank processes -> run_on_model() --> RankFunction(rank, Gloo transport)

#include "commands.h"
#include "transport/transport.h"

namespace chimera::apps {

/// Options of run_on_model(): the model, and how many ranks run it.
struct ModelRunOptions {
  std::string from;  // folder of a model, a checkpoint, or a folder of checkpoints (the newest valid one)
  std::int64_t ranks = 1;
  std::int64_t threads = 0;  // intra-op threads per rank; 0: cores / ranks, at least 1
};

/// Function that runs on each rank: the body of a command. `transport` carries messages and sums between the ranks.
using RankFunction = std::function<void(RankId rank, Transport& transport)>;

/// Calls `prepare` with the folder of the model, runs the function that it returns on all ranks, and returns the exit
/// code of the process. `prepare` runs once in the launcher, before any rank starts, so that it can reject wrong flags,
/// and again in each rank. If `model.from` contains several checkpoints, all ranks use the one that the launcher found.
/// Throws the errors of `prepare`, and Error if the folder, a process or a transport fails.
[[nodiscard]] int run_on_model(const ModelRunOptions& model, const Invocation& invocation,
                               const std::function<RankFunction(const std::string& folder)>& prepare);

}  // namespace chimera::apps
