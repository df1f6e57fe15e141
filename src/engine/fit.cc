#include "engine/fit.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <mutex>

#include "core/cores.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

/// Torch's threads for ops called from this thread; as before at its end.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int threads) { at::set_num_threads(threads); }
  ~IntraOpThreads() { at::set_num_threads(before_); }
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

 private:
  int before_ = at::get_num_threads();
};

}  // namespace

Parameters fit(const FitRun& run, const std::function<void(const FitStep&)>& on_step) {
  const auto ranks = static_cast<int>(run.num_ranks());
  const int threads =
      run.options.threads > 0 ? static_cast<int>(run.options.threads) : std::max(available_cores() / ranks, 1);
  Parameters parameters;
  std::mutex mutex;
  run_rank_threads(ranks, run.rank_groups(), [&](RankId rank, Transport& transport) {
    const IntraOpThreads limit(threads);
    RankFit trainer(run, rank, transport);
    for (std::int64_t step = 0; step < run.options.steps; ++step) {
      const FitStep done = trainer.train_step(step);
      if (on_step && rank == RankId(0)) on_step(done);
    }
    const std::lock_guard lock(mutex);
    for (const auto& [id, stage] : trainer.stages()) {
      for (const auto& [name, value] : stage->values()) parameters.emplace(name, value.detach());
    }
  });
  return parameters;
}

}  // namespace chimera
