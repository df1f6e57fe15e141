// The order of the ops stays, so `Places` looks up inputs and delays once, and times a permutation in one pass over the
// ops. permuted_micro_batches() climbs: it swaps two micro-batches wherever that makes the step faster.

#include "simulate/permute.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/mapped.h"
#include "core/random.h"
#include "schedule/dependencies.h"
#include "simulate/cost_table.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

/// An op of average work, and where it finds its inputs.
struct PlacedOp {
  std::uint32_t worker = 0;
  std::uint32_t place = 0;  // Its micro-batch
  OpIndex index = 0;
  std::array<OpIndex, 3> inputs = {kNoOp, kNoOp, kNoOp};
  std::array<double, 3> delays = {};
  double duration = 0;  // Scales with the work
  double again = 0;     // Part of it that is recomputation
  double copies = 0;    // Does not scale
};

/// Times a schedule for many permutations: a few nanoseconds for an op.
class Places {
 public:
  Places(const Schedule& schedule, const CostModel& costs)
      : end_(static_cast<std::size_t>(num_ops(schedule))), free_(schedule.workers.size()) {
    // Durations of average work; energy() multiplies them by the work of the micro-batch that stands at the place.
    CostModel even = costs;
    even.micro_batches.clear();
    const OpTable table(schedule);
    const CostTable times(schedule, even);
    visit_in_dependency_order(table, [&](OpIndex index) {
      const Op& op = table.op(index);
      PlacedOp& placed = ops_.emplace_back();
      placed = {.worker = static_cast<std::uint32_t>(table.worker(index)),
                .place = static_cast<std::uint32_t>(op.micro_batch.index()),
                .index = index,
                .duration = times.own_duration(op),
                .again = times.recomputation(op),
                .copies = times.duration(op) - times.own_duration(op)};
      std::size_t count = 0;
      for (const OpIndex input : table.inputs(op)) {
        if (input == kNoOp) continue;
        const bool is_near = table.worker(input) == table.worker(index);
        placed.delays[count] = is_near ? 0 : times.message_time(table.op(input));
        placed.inputs[count++] = input;
      }
    });
  }

  [[nodiscard]] std::int64_t num_ops_timed() const { return std::ssize(ops_); }

  /// Returns the makespan plus a small part of the mean end of workers, which decides between equal makespans.
  double energy(const std::vector<double>& work) {
    std::ranges::fill(free_, 0);
    for (const PlacedOp& op : ops_) {
      double& free = free_[op.worker];
      // Recomputation need not wait for the inputs.
      free += op.again * work[op.place];
      for (std::size_t i = 0; i < op.inputs.size() && op.inputs[i] != kNoOp; ++i)
        free = std::max(free, end_[op.inputs[i]] + op.delays[i]);
      free += (op.duration - op.again) * work[op.place] + op.copies;
      end_[op.index] = free;
    }
    constexpr double kShareOfMeanEnd = 0.02;
    const double sum = std::accumulate(free_.begin(), free_.end(), 0.0);
    return std::ranges::max(free_) + kShareOfMeanEnd * sum / static_cast<double>(free_.size());
  }

 private:
  std::vector<PlacedOp> ops_;  // Each after its inputs
  std::vector<double> end_;    // [op]
  std::vector<double> free_;   // [worker]
};

}  // namespace

std::vector<double> work_of_places(const std::vector<double>& work,
                                   const std::vector<std::int64_t>& micro_batch_of_place) {
  return mapped(micro_batch_of_place, [&](std::int64_t i) { return work[static_cast<std::size_t>(i)]; });
}

// Hill climbing from the data's own order and from a few random ones: each round tries all pairs in turn.
std::vector<std::int64_t> permuted_micro_batches(const Schedule& schedule, const CostModel& costs) {
  constexpr std::int64_t kEffort = 900'000;  // Ops to time: about four milliseconds
  if (schedule.updates) throw ConfigError("micro-batches of an asynchronous schedule cannot be permuted");
  std::vector<std::int64_t> identity(static_cast<std::size_t>(schedule.micro_batches));
  std::iota(identity.begin(), identity.end(), 0);
  std::vector<double> work = costs.micro_batches;
  if (work.size() < 2 || std::ranges::min(work) == std::ranges::max(work)) return identity;
  Places places(schedule, costs);
  std::int64_t left = std::max<std::int64_t>(100, kEffort / std::max<std::int64_t>(1, places.num_ops_timed()));
  const CounterRandom random(0, "permuted micro-batches");
  std::uint64_t drawn = 0;
  const std::size_t n = identity.size();
  std::vector<std::int64_t> best = identity;
  double least = places.energy(work);
  for (bool first = true; left > 0; first = false) {
    std::vector<std::int64_t> order = identity;
    if (!first)
      for (std::size_t i = n; i > 1; --i)
        std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(drawn++, i))]);
    work = work_of_places(costs.micro_batches, order);
    double energy = places.energy(work);
    // (i, j) runs through all pairs in turn, again and again, until all n (n - 1) / 2 pairs in a row were no gain.
    for (std::size_t since = 0, i = 0, j = 0; left > 0 && since < n * (n - 1) / 2; ++since) {
      if (++j >= n) {
        i = i + 2 < n ? i + 1 : 0;
        j = i + 1;
      }
      if (work[i] == work[j]) continue;
      std::swap(work[i], work[j]);
      --left;
      const double swapped = places.energy(work);
      if (swapped < energy) {
        std::swap(order[i], order[j]);
        energy = swapped;
        since = 0;
      } else {
        std::swap(work[i], work[j]);
      }
    }
    --left;
    if (energy >= least) continue;
    least = energy;
    best = order;
  }
  // energy() ignores links, all-reduces and updates, so the simulator decides whether the permutation is used.
  CostModel permuted = costs;
  permuted.micro_batches = work_of_places(costs.micro_batches, best);
  return simulate(schedule, permuted).makespan < simulate(schedule, costs).makespan ? best : identity;
}

}  // namespace chimera
