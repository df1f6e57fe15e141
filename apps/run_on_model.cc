#include "run_on_model.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <algorithm>
#include <mutex>

#include "checkpoint/checkpoint_folder.h"
#include "core/cgroup.h"
#include "core/error.h"
#include "core/files.h"
#include "core/resident_memory.h"
#include "flags/values.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/threads/rank_threads.h"

namespace chimera::apps {
namespace {

void use_threads(const ModelRunOptions& model) {
  // One op at a time: the ops of a forward depend on each other.
  static std::once_flag once;  // LibTorch refuses a second call, after a checkpoint that was removed meanwhile
  std::call_once(once, [] { at::set_num_interop_threads(1); });
  at::set_num_threads(
      static_cast<int>(model.threads > 0 ? model.threads : std::max<std::int64_t>(available_cores() / model.ranks, 1)));
}

void run_rank(const RankFunction& body, const std::optional<RankEnvironment>& rank) {
  // One rank needs no other process, and its transport no peers.
  if (!rank) return run_rank_threads(1, {}, body);
  const auto transport =
      connect_gloo({.rank = rank->rank, .world_size = rank->world_size, .rendezvous = rank->rendezvous, .groups = {}});
  body(RankId(rank->rank), *transport);
}

}  // namespace

int run_on_model(const ModelRunOptions& model, const Invocation& invocation,
                 const std::function<RankFunction(const std::string& folder)>& prepare) {
  keep_freed_memory();
  if (!invocation.rank) warn_about_surplus_threads("--threads", model.threads, model.ranks);
  const bool launches = !invocation.rank && model.ranks > 1;
  std::string chosen;
  const auto run = [&](const std::string& folder) {
    chosen = folder;
    const RankFunction body = prepare(folder);
    if (launches) return;
    use_threads(model);
    run_rank(body, invocation.rank);
  };
  try {
    // The launcher resolves the folder and passes it on as input. A rank that resolved it again could find a newer
    // checkpoint.
    if (invocation.rank) {
      run(read_whole(invocation.rank->input_path));  // The launcher's input is the name of the folder, and nothing else
    } else {
      // Calls `run` again with a newer checkpoint if a training run removes the first one meanwhile.
      use_model_folder(model.from, available_cores(), run);
    }
  } catch (const PeerLostError& error) {
    // Another rank has failed and is to blame. The launcher reports that one.
    report_failure({.message = error.what(), .own_cause = false});
    return static_cast<int>(ExitCode::PeerLost);
  } catch (const c10::Error& error) {
    throw Error(error.what_without_backtrace());
  }
  if (!launches) return static_cast<int>(ExitCode::Success);
  return launch({.ranks = static_cast<int>(model.ranks),
                 .arguments = invocation.arguments,
                 .input = chosen,
                 .entry = invocation.entry});
}

}  // namespace chimera::apps
