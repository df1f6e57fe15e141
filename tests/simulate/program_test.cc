// Times the instructions of the program one by one, as the executor runs them, and compares these times with
// simulate().

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/random.h"
#include "passes/lower.h"
#include "passes/pair_neighbors.h"
#include "passes/unroll.h"
#include "simulate/cost_table.h"
#include "simulate/simulate.h"
#include "support/schedules.h"

namespace chimera {
namespace {

/// Start of an all-reduce: its stage, and the number of the worker's earlier ops.
using Launch = std::pair<std::int64_t, std::size_t>;

struct WorkerTimes {
  std::vector<double> op_ends;
  std::vector<Launch> launches;
  std::vector<TimedOp> sums;  // in order of start
  std::vector<TimedOp> updates;
};

/// When a sent tensor leaves: at once, if a transport buffers it, or not before its receive is posted.
enum class Sends { Buffered, Unbuffered };

/// Runs the instructions of all workers. A worker passes a wait as soon as its condition holds.
class ProgramTimer {
 public:
  /// `update`: [worker], seconds of its OptimizerStep.
  ProgramTimer(const Program& program, const CostTable& costs, std::vector<double> update, Sends sends)
      : program_(program),
        costs_(costs),
        sends_(sends),
        update_(std::move(update)),
        groups_(gradient_groups(program.placement, program.tied)),
        workers_(program.workers.size()),
        clock_(program.workers.size(), 0),
        next_(program.workers.size(), 0) {}

  std::vector<WorkerTimes> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t w = 0; w < workers_.size(); ++w) {
        for (; next_[w] < program_.workers[w].size() && step(w, program_.workers[w][next_[w]]); ++next_[w])
          moved = true;
      }
    }
    for (std::size_t w = 0; w < workers_.size(); ++w) EXPECT_EQ(next_[w], program_.workers[w].size()) << "stuck";
    return workers_;
  }

 private:
  using Tensor = std::tuple<OpKind, std::int64_t, std::int64_t, std::int64_t>;  // kind, stage, micro-batch, slice
  using Channel = std::pair<std::size_t, std::size_t>;                          // from, to

  static Tensor tensor(const Op& op) { return {op.kind, op.stage.value(), op.micro_batch.value(), op.slice}; }

  /// Returns false if the worker must wait for an event with an unknown time.
  bool step(std::size_t w, const Instruction& instruction) {
    const Op& op = instruction.op;
    const std::size_t peer = instruction.peer.index();
    switch (instruction.kind) {
      case InstructionKind::Recompute: clock_[w] += costs_.recomputation(op); return true;
      case InstructionKind::Compute: return compute(w, op);
      case InstructionKind::PostReceive: posted_[tensor(op)] = clock_[w]; return true;
      case InstructionKind::StartSend: sent_[{w, peer}].emplace_back(op, clock_[w]); return true;
      case InstructionKind::WaitReceive: return wait(w, {peer, w}, op, &Transfer::arrived);
      case InstructionKind::WaitSend: return wait(w, {w, peer}, op, &Transfer::left);
      case InstructionKind::StartAllReduce: return launch(w, instruction.group);
      case InstructionKind::WaitAllReduce: return wait_for_sum(w, instruction.group);
      case InstructionKind::OptimizerStep: return update(w, update_[w]);
      case InstructionKind::UpdateWeights: return update(w, costs_.optimizer(op.stage));
      case InstructionKind::ReduceScalars: return wait_for_all(w);
      case InstructionKind::DropWeights:
      case InstructionKind::Offload:
      case InstructionKind::Load: return true;
    }
    return true;
  }

  /// The first op of a pair waits for the second one, whose Compute is the worker's next instruction.
  bool compute(std::size_t w, const Op& op) {
    std::vector<Op>& ops = at_once_[w];
    ops.push_back(op);
    if (op.paired) return true;
    clock_[w] += costs_.duration(ops) - costs_.recomputation(ops);
    workers_[w].op_ends.insert(workers_[w].op_ends.end(), ops.size(), clock_[w]);
    ops.clear();
    return true;
  }

  struct Transfer {
    double left = 0;  // the sender
    double arrived = 0;
  };

  bool wait(std::size_t w, Channel channel, const Op& op, double Transfer::*until) {
    const auto found = transfers_.find(tensor(op));
    if (found == transfers_.end() && !transfer_until(channel, op)) return false;
    clock_[w] = std::max(clock_[w], transfers_.at(tensor(op)).*until);
    return true;
  }

  /// Moves the transfers in flight on a channel, in order, up to `op`'s tensor. Returns false if an earlier transfer
  /// lacks an end.
  bool transfer_until(Channel channel, const Op& op) {
    auto& queue = sent_[channel];
    std::size_t& moved = moved_[channel];
    double& free = link_free_[channel];
    while (moved < queue.size()) {
      const auto& [made, time] = queue[moved];
      const auto posted = posted_.find(tensor(made));
      if (sends_ == Sends::Unbuffered && posted == posted_.end()) return false;
      const double begin = std::max({time, sends_ == Sends::Unbuffered ? posted->second : 0, free});
      free = begin + costs_.link_time(made);
      transfers_[tensor(made)] = {free, free + costs_.delay(made)};
      ++moved;
      if (tensor(made) == tensor(op)) return true;
    }
    return false;
  }

  bool launch(std::size_t w, ParameterGroupId group) {
    workers_[w].launches.emplace_back(group.value(), workers_[w].op_ends.size());
    launched_[w].emplace_back(group, clock_[w]);
    return true;
  }

  /// The group's all-reduce after `round` earlier ones. It begins when all members have started it, in their order.
  /// Empty if a member has not yet started it.
  std::optional<TimedOp> sum(ParameterGroupId group, std::size_t round) {
    const auto known = sums_.find({group, round});
    if (known != sums_.end()) return known->second;
    double start = 0;
    for (const WorkerId member : groups_[group.index()]) {
      const auto& launched = launched_[member.index()];
      std::map<ParameterGroupId, std::size_t> rounds;
      std::optional<TimedOp> before;
      auto own = launched.begin();
      for (; own != launched.end() && (own->first != group || rounds[group] != round); ++own) {
        before = sum(own->first, rounds[own->first]++);
        if (!before) return std::nullopt;
      }
      if (own == launched.end()) return std::nullopt;
      start = std::max({start, own->second, before ? before->end : 0});
    }
    return sums_[{group, round}] = {start, start + costs_.all_reduce(group)};
  }

  bool wait_for_sum(std::size_t w, ParameterGroupId group) {
    const auto found = sum(group, waited_[{w, group}]);
    if (!found) return false;
    ++waited_[{w, group}];
    workers_[w].sums.push_back(*found);
    clock_[w] = std::max(clock_[w], found->end);
    return true;
  }

  /// Norms and losses of one step are summed over all workers, in no time.
  bool wait_for_all(std::size_t w) {
    if (program_.steps > 1) return true;
    arrived_[w] = clock_[w];
    if (arrived_.size() < workers_.size()) return false;
    for (const auto& [worker, time] : arrived_) clock_[w] = std::max(clock_[w], time);
    return true;
  }

  bool update(std::size_t w, double seconds) {
    workers_[w].updates.push_back({clock_[w], clock_[w] + seconds});
    clock_[w] += seconds;
    return true;
  }

  const Program& program_;
  const CostTable& costs_;
  Sends sends_;
  std::vector<double> update_;
  std::vector<std::vector<WorkerId>> groups_;  // [stage]
  std::vector<WorkerTimes> workers_;
  std::vector<double> clock_;                       // [worker]
  std::vector<std::size_t> next_;                   // [worker]: next instruction
  std::map<std::size_t, std::vector<Op>> at_once_;  // by worker: ops of a pair until both are known
  std::map<Tensor, double> posted_;
  std::map<Tensor, Transfer> transfers_;
  std::map<Channel, std::vector<std::pair<Op, double>>> sent_;
  std::map<Channel, std::size_t> moved_;
  std::map<Channel, double> link_free_;
  std::map<std::size_t, std::vector<std::pair<ParameterGroupId, double>>> launched_;  // by worker
  std::map<std::pair<std::size_t, ParameterGroupId>, std::size_t> waited_;            // by worker and group
  std::map<std::size_t, double> arrived_;                             // by worker: time at the sum of norms
  std::map<std::pair<ParameterGroupId, std::size_t>, TimedOp> sums_;  // by group and number of earlier all-reduces
};

/// Placement of the all-reduces, and the number of groups that run the schedule.
struct Sums {
  AllReducePlacement placement = AllReducePlacement::EagerOpt;
  std::int64_t data_parallel = 1;
  bool tied = false;
};

CostModel any_costs(const Schedule& schedule, const Sums& sums, std::uint64_t seed) {
  const CounterRandom random(seed, "costs");
  std::uint64_t drawn = 0;
  const auto draw = [&] { return 1 + 0.125 * static_cast<double>(random.below(drawn++, 16)); };
  CostModel costs;
  costs.latency = seed % 2 == 0 ? 0 : 0.25;
  costs.all_reduce = AllReduceCosts{.data_parallel = sums.data_parallel, .tied = sums.tied};
  for (std::int64_t s = 0; s < schedule.stages; ++s) {
    costs.stages.push_back({draw(), 2 * draw(), draw(), draw()});
    costs.all_reduce->seconds.push_back(draw());
    costs.optimizer.push_back(draw());
    costs.recompute.push_back(s % 3 == 1 ? draw() : 0);
  }
  if (sums.tied) costs.all_reduce->seconds.push_back(draw());
  costs.all_reduce_placement = sums.placement;
  costs.slices.attention = 0.125 * static_cast<double>(seed % 9);
  if (seed % 5 == 0 && schedule.slices == 2) costs.slices.bounds = {0, 0.25, 1};
  if (has_pairs(schedule) && seed % 3 != 0) costs.pair = seed % 3 == 1 ? 0 : 0.75;
  return costs;
}

Program program_of(const Schedule& schedule, const CostTable& table) {
  LoweringOptions options{.all_reduces = table.sums(), .pairs = table.pairs()};
  for (std::int64_t s = 0; s < schedule.stages; ++s) {
    if (table.recomputation({OpKind::Backward, ReplicaId(0), StageId(s), MicroBatchId(0)}) > 0)
      options.recompute.emplace(s);
  }
  return lower(schedule, options);
}

/// All-reduces over several ranks. A timeline leaves out the others.
std::vector<Launch> real_launches(const WorkerTimes& worker, const CostTable& table) {
  std::vector<Launch> launches;
  std::ranges::copy_if(worker.launches, std::back_inserter(launches),
                       [&](const Launch& launch) { return table.all_reduce(ParameterGroupId(launch.first)) > 0; });
  return launches;
}

void expect_times_of_program(const Schedule& schedule, const CostModel& costs, const Timeline& timeline,
                             Sends sends = Sends::Buffered) {
  const CostTable table(schedule, costs);
  const Program program = program_of(schedule, table);
  const auto workers = ProgramTimer(program, table, table.updates(schedule), sends).run();
  for (std::size_t w = 0; w < workers.size(); ++w) {
    SCOPED_TRACE("worker " + std::to_string(w));
    std::vector<Launch> launches;
    for (const TimedAllReduce& sum : timeline.workers[w].all_reduces)
      launches.emplace_back(sum.group.value(), sum.after);
    ASSERT_EQ(launches, real_launches(workers[w], table));
    std::vector<double> ends;
    for (const TimedOp& op : timeline.workers[w].ops) ends.push_back(op.end);
    ASSERT_EQ(ends, workers[w].op_ends);
    ASSERT_EQ(timeline.workers[w].updates.size(), workers[w].updates.size());
    for (std::size_t i = 0; i < workers[w].updates.size(); ++i)
      EXPECT_EQ(timeline.workers[w].updates[i].end, workers[w].updates[i].end);
    if (schedule.updates) continue;  // its all-reduces are part of its updates
    std::vector<TimedOp> sums;
    for (std::size_t i = 0; i < workers[w].sums.size(); ++i) {
      if (table.all_reduce(ParameterGroupId(workers[w].launches[i].first)) > 0) sums.push_back(workers[w].sums[i]);
    }
    ASSERT_EQ(sums.size(), timeline.workers[w].all_reduces.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(timeline.workers[w].all_reduces[i].start, sums[i].start);
      EXPECT_EQ(timeline.workers[w].all_reduces[i].end, sums[i].end);
    }
  }
}

template <class Visit>
void for_all_programs(std::int64_t most_stages, const Visit& visit) {
  std::uint64_t seed = 0;
  for (const Generator& generator : generators()) {
    for (const PipelineShape& shape : testing::small_shapes(generator.name, most_stages)) {
      const Schedule step = generator.generate(shape);
      const Schedule schedule = step.updates ? unroll(step, 2) : step;
      const Schedule paired = pair_neighbors(step);
      for (const auto placement : {AllReducePlacement::Post, AllReducePlacement::Eager, AllReducePlacement::EagerOpt}) {
        for (const std::int64_t groups : {1, 2}) {
          for (const bool tied : {false, true}) {
            if (schedule.updates && (tied || placement != AllReducePlacement::EagerOpt)) continue;
            SCOPED_TRACE(testing::describe(generator.name, shape) + " sync " +
                         std::to_string(static_cast<int>(placement)) + " W " + std::to_string(groups) +
                         (tied ? " tied" : ""));
            const Sums sums{placement, groups, tied};
            visit(schedule, any_costs(schedule, sums, ++seed));
            if (has_pairs(paired) && !tied) visit(paired, any_costs(paired, sums, ++seed));
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(ProgramTest, TakesTheTimesOfTheSimulatedSchedule) {
  for_all_programs(5, [](const Schedule& schedule, const CostModel& costs) {
    expect_times_of_program(schedule, costs, simulate(schedule, costs));
  });
}

TEST(ProgramTest, EarlyReceivesMakeBuffersUnnecessaryForEqualStages) {
  for_all_programs(5, [](const Schedule& schedule, CostModel costs) {
    costs = CostModel::uniform(schedule, testing::costs(1, 2));
    expect_times_of_program(schedule, costs, simulate(schedule, costs), Sends::Unbuffered);
  });
}

TEST(ProgramTest, TakesTheTimesOfASimulationOnCores) {
  for_all_programs(4, [](const Schedule& schedule, const CostModel& costs) {
    const auto enough = 2 * static_cast<double>(schedule.workers.size());
    expect_times_of_program(schedule, costs, simulate(schedule, costs, {.cores = {.cores = enough}}));
  });
}

}  // namespace
}  // namespace chimera
