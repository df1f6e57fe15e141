#pragma once

// How `evaluate`, `export` and `generate` start: they find the folder of a model, check the flags against it, and run
// on one rank in this process, or on several rank processes of which each reads its own layers.
//
//   run_on_model()  --one rank-->       body(0, transport of one thread)
//        |  launch()
//        +--> rank processes -> run_on_model() --> body(rank, Gloo)

#include <cstdint>
#include <functional>
#include <string>

#include "commands.h"
#include "transport/transport.h"

namespace chimera::apps {

struct ModelRanks {
  std::string from;  // folder of a model, a checkpoint, or a folder of checkpoints
  std::int64_t ranks = 1;
  std::int64_t threads = 0;  // intra-op threads per rank; 0: cores / ranks, at least 1
};

/// What each rank does.
using ModelRank = std::function<void(RankId rank, Transport& transport)>;

/// Runs the function that `prepare` returns on all ranks. Calls `prepare` with the folder of the model in the launcher,
/// before any rank starts, to check the flags, and again in each rank. All ranks use the checkpoint that their launcher
/// found. Throws Error. Returns the exit code.
[[nodiscard]] int run_on_model(const ModelRanks& model, const Invocation& invocation,
                               const std::function<ModelRank(const std::string& folder)>& prepare);

}  // namespace chimera::apps
