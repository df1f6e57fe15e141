#include "engine/canonical.h"

#include <ATen/Context.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <utility>

#include "core/reject.h"

// The plan in four steps: runs_of() gives each replica its range of positions in data order, blocks_of() chooses the
// number of blocks so that no block contains micro-batches of two replicas, require_order() checks that each stage adds
// gradients in data order, and order_of() turns the ranges of each rank into subtrees.

namespace chimera {
namespace {

/// Returns the micro-batches of each replica, in data order [group * replicas + replica].
std::vector<MicroBatchRun> runs_of(const RunShape& run) {
  std::vector<MicroBatchRun> runs;
  std::int64_t next = 0;
  for (std::int64_t group = 0; group < run.ranks.data_parallel; ++group) {
    for (const auto& replica : micro_batches_of_replicas(run.schedule)) {
      const std::int64_t first = std::exchange(next, next + std::ssize(replica));
      runs.push_back({first, next});
    }
  }
  return runs;
}

std::int64_t blocks_of(const RunShape& run, const std::vector<MicroBatchRun>& runs, std::int64_t asked,
                       const std::string& what) {
  const std::int64_t blocks = asked > 0 ? asked : default_reduction_blocks(run.micro_batches());
  const auto legal = legal_reduction_blocks(run.micro_batches(), runs);
  if (std::ranges::binary_search(legal, blocks)) return blocks;
  reject("{} {}{}: {} micro-batches on {} x {} replicas do not fall into whole blocks; use {}", what, blocks,
         asked > 0 ? "" : " (the default)", run.micro_batches(), run.ranks.data_parallel,
         run.schedule.placement.num_replicas(), fmt::join(legal, ", "));
}

void require_order(const Schedule& schedule) {
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    // Blocks are finished in ascending order, and slices of a micro-batch must not mix with others.
    std::map<std::pair<StageId, ReplicaId>, Op> last;
    for (const Op& op : schedule.workers[w]) {
      if (!gives_weight_gradient(op.kind)) continue;
      const auto [before, is_first] = last.try_emplace({op.stage, op.replica}, op);
      const Op& other = before->second;
      // The backwards of a micro-batch run from its last slice to slice 0, after which a later one may begin.
      const bool begins = op.micro_batch > other.micro_batch && other.slice == 0 && op.slice == schedule.slices - 1;
      const bool continues = op.micro_batch == other.micro_batch && op.slice < other.slice;
      if (!is_first && !begins && !continues) {
        reject(
            "canonical reduction: worker {} runs {} after {} of the same replica; it needs ascending micro-batches, "
            "and "
            "the slices of each one after another, the last one first",
            w, to_text(op, schedule.slices), to_text(other, schedule.slices));
      }
      before->second = op;
    }
  }
}

/// Gradients of a stage's backwards, in blocks from `first_block` on.
struct Use {
  StageId stage;
  std::int64_t first_block = 0;
};

/// A tied matrix is used twice: the embedding's blocks form the left half of the tree, the head's the right half.
std::vector<Use> uses_of(const RunShape& run, ParameterGroupId group, std::int64_t num_blocks) {
  if (group != tied_matrix(run.schedule.stages)) return {{StageId(group.value())}};
  // A power of two, so that the two uses are the two children of the root. With 6 blocks, the embedding has the blocks
  // 0 to 5, the head 8 to 13, and the blocks between are missing on every rank.
  const auto half = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(num_blocks)));
  return {{StageId(0)}, {StageId(run.schedule.stages - 1), half}};
}

SumOrder order_of(const RunShape& run, const std::vector<MicroBatchRun>& runs, const std::vector<Use>& uses,
                  const std::vector<RankId>& ranks, std::int64_t block_size) {
  const std::size_t replicas = run.schedule.placement.num_replicas();
  SumOrder order;
  for (const RankId rank : ranks) {
    const GroupWorker place = run.ranks.place(rank);
    // A rank's runs of micro-batches become the largest whole subtrees that they cover. The transport then adds the
    // subtrees of all ranks by the same tree, so it does not matter which rank has which.
    auto& parts = order.parts.emplace_back();
    for (const Use& use : uses) {
      for (std::size_t r = 0; r < replicas; ++r) {
        if (run.schedule.placement.worker_of[r][use.stage.index()] != place.worker) continue;
        // Both ends of a run are multiples of the block size (legal_reduction_blocks()).
        const MicroBatchRun& taken = runs[place.group.index() * replicas + r];
        const auto trees =
            subtrees_of(use.first_block + taken.first / block_size, use.first_block + taken.last / block_size);
        parts.insert(parts.end(), trees.begin(), trees.end());
      }
    }
  }
  return order;
}

struct KernelSettings {
  bool deterministic = true;
  bool only_warns = false;
  bool fills_memory = false;  // uninitialized tensors, with NaN; only for debugging
};

KernelSettings exchange_settings(const KernelSettings& settings) {
  at::Context& torch = at::globalContext();
  const KernelSettings before{.deterministic = torch.deterministicAlgorithms(),
                              .only_warns = torch.deterministicAlgorithmsWarnOnly(),
                              .fills_memory = torch.deterministicFillUninitializedMemory()};
  torch.setDeterministicAlgorithms(settings.deterministic, settings.only_warns);
  torch.setDeterministicFillUninitializedMemory(settings.fills_memory);
  return before;
}

struct DeterministicUsers {
  std::mutex mutex;
  int count = 0;
  KernelSettings before;
} deterministic_users;

}  // namespace

CanonicalReduction canonical_reduction(const RunShape& run, std::int64_t blocks, const std::string& what) {
  require_order(run.schedule);
  const std::vector<MicroBatchRun> runs = runs_of(run);
  CanonicalReduction result;
  const std::int64_t num_blocks = blocks_of(run, runs, blocks, what);
  result.block_size = run.micro_batches() / num_blocks;
  const auto groups = run.rank_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto uses = uses_of(run, ParameterGroupId(static_cast<std::int64_t>(g)), num_blocks);
    result.orders.push_back(order_of(run, runs, uses, groups[g], result.block_size));
  }
  return result;
}

DeterministicKernels::DeterministicKernels(bool is_on) : is_on_(is_on) {
  if (!is_on_) return;
  const std::scoped_lock lock(deterministic_users.mutex);
  // The switch belongs to the process, but several thread ranks may train, so the last user restores it.
  if (deterministic_users.count++ == 0) deterministic_users.before = exchange_settings({});
}

DeterministicKernels::~DeterministicKernels() {
  if (!is_on_) return;
  const std::scoped_lock lock(deterministic_users.mutex);
  if (--deterministic_users.count == 0) exchange_settings(deterministic_users.before);
}

}  // namespace chimera
