#include "profile/step_memory.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/memory_file.h"
#include "engine/held_stages.h"
#include "model_config/partition.h"
#include "runtime/executor.h"
#include "runtime/memory_meter.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/threads/rank_threads.h"
#include "transport/threads/thread_transport.h"

namespace chimera::benchmarks {
namespace {

/// The stages that a worker holds.
std::map<StageId, std::unique_ptr<Stage>> stages_of(WorkerId worker, const WorkerGroups& groups,
                                                    const ModelConfig& model) {
  const auto num_stages = static_cast<std::int64_t>(groups.size());
  const auto partition = even_partition(model.layers, num_stages);
  std::map<StageId, std::unique_ptr<Stage>> stages;
  for (std::int64_t s = 0; s < num_stages; ++s) {
    const auto& group = groups[static_cast<std::size_t>(s)];
    if (!std::ranges::binary_search(group, worker)) continue;
    stages[StageId(s)] = make_stage(model, partition[static_cast<std::size_t>(s)], at::kFloat, /*seed=*/1);
  }
  return stages;
}

MicroBatch any_micro_batch(const BatchSize& size) {
  const at::Tensor tokens = at::ones({size.sequences, size.tokens}, at::kLong);
  return {.tokens = tokens, .targets = tokens};
}

/// Makes the ends of all ranks, each on the rank's own thread.
class Connector {
 public:
  Connector(Exchange exchange, int ranks, RankGroups groups)
      : exchange_(exchange),
        ranks_(ranks),
        groups_(std::move(groups)),
        hub_(ranks, groups_),
        store_(make_memory_file("store", 0)) {}

  [[nodiscard]] std::unique_ptr<Transport> connect(RankId rank) {
    if (exchange_ == Exchange::ByReference) return hub_.transport(rank);
    return connect_gloo({.rank = static_cast<int>(rank.value()),
                         .world_size = ranks_,
                         .meeting = meeting_in_file("/proc/self/fd/" + std::to_string(store_.get())),
                         .groups = groups_});
  }
  /// Ends the ranks that wait for others; those over Gloo notice by themselves that one has gone.
  void close(const std::string& why) { hub_.close(why); }

 private:
  Exchange exchange_;
  int ranks_;
  RankGroups groups_;
  ThreadHub hub_;
  FileDescriptor store_;
};

}  // namespace

std::vector<StepMemory> measure_step_memory(const Schedule& schedule, const ModelConfig& model, const BatchSize& size,
                                            Exchange exchange, const LoweringOptions& lowering) {
  const Program program = lower(schedule, lowering);
  const WorkerGroups groups = stage_groups(schedule.placement);
  const std::size_t num_workers = schedule.workers.size();
  const StepHooks hooks{.load = [&](StageId, MicroBatchId) { return any_micro_batch(size); },
                        .optimizer_step = [](double) {},
                        .peak_memory = [] { return 0.0; },
                        .update_weights = [](StageId, MicroBatchId, double) {}};
  const RankLayout ranks{.workers = static_cast<std::int64_t>(num_workers)};
  Connector connector(exchange, static_cast<int>(num_workers), ranks.ranks_of(groups));
  MemoryMeter meter(num_workers);
  std::vector<StepMemory> memory(num_workers);
  const auto run_rank = [&](RankId rank) {
    at::set_num_threads(1);
    const WorkerId worker = ranks.place(rank).worker;
    const auto stages = stages_of(worker, groups, model);
    const auto transport = connector.connect(rank);
    Executor executor(worker, borrow<Stage>(stages), *transport,
                      {{size.sequences, size.tokens, model.hidden}, at::kFloat},
                      {schedule.micro_batches / lowering.steps, ranks, groups});
    const MemoryMeter::Recording recording(meter, rank);
    static_cast<void>(executor.run(program.workers[worker.index()], hooks));
    memory[worker.index()] = {meter.peak_bytes(rank), meter.live_bytes(rank)};
  };
  const auto count = static_cast<int>(num_workers);
  const auto failure = RankThreads(count).run(count, run_rank, [&](const std::string& why) { connector.close(why); });
  if (failure) std::rethrow_exception(failure->error);
  return memory;
}

}  // namespace chimera::benchmarks
