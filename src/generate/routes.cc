// `Routing` counts blocks: for each path and stage (a `Demand`), how many of the path's blocks each holder of the stage
// runs. It begins with the healthy workers, and gives the blocks of lost workers one by one to the holder that ends
// first (assign_lost()). Each extra copy gets a block (use_copy()), and chains of moves then relieve the worker that
// ends last, until no chain helps (relieve_busiest()). Finally lay_out() turns the counts of a path into detours: runs
// of consecutive micro-batches with the same workers at all stages.

#include "generate/routes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/reject.h"

namespace chimera {
namespace {

constexpr double kTiny = 1e-9;

/// The blocks of a path at a stage.
struct Demand {
  std::size_t healthy = 0;           // Worker
  bool moves = false;                // Whether its blocks may be on other holders
  std::vector<std::int64_t> counts;  // [holder of the stage]: blocks
};

/// A demand's count on a worker.
struct Held {
  std::size_t demand = 0;
  std::size_t holder = 0;
};

/// A move of a block between two holders of its stage.
struct Step {
  std::size_t demand = 0;
  std::size_t from = 0;
  std::size_t to = 0;
};

/// A micro-batch of a detour, and the part of the detour's micro-batches that precede it.
struct Turn {
  double part = 0;
  MicroBatchId micro_batch;
};

/// Consecutive blocks of a path at a stage.
struct Run {
  std::size_t worker = 0;
  std::int64_t end = 0;  // Behind its last block
};

class Routing {
 public:
  explicit Routing(const RouteTask& task)
      : task_(task), load_(task.speeds.size(), 0), start_(task.speeds.size(), 0), held_(task.speeds.size()) {
    for (std::size_t s = times_.size(); s < stages_; ++s)
      times_.push_back({3 * static_cast<double>(task.healthy.slices), static_cast<double>(s)});
    find_holders();
    require_blocks();
    for (const auto& holders : holders_) blocks_.emplace_back(holders.size(), 0);
  }

  Routes run() {
    assign_healthy();
    for (std::size_t d = 0; d < demands_.size(); ++d) assign_lost(d);
    for (const ExtraCopy& copy : task_.extra_copies) use_copy(copy);
    while (relieve_busiest()) {
    }
    Routes routes;
    routes.replica_of.resize(static_cast<std::size_t>(task_.healthy.micro_batches));
    routes.place_of.resize(routes.replica_of.size());
    for (std::size_t p = 0; p < members_.size(); ++p) lay_out(p, routes);
    for (std::size_t w = 0; w < load_.size(); ++w)
      if (load_[w] > kTiny) routes.bound = std::max(routes.bound, end_of(w));
    for (std::size_t w = 0; w < load_.size(); ++w)
      routes.busiest += load_[w] > kTiny && end_of(w) > routes.bound - kTiny ? 1 : 0;
    return routes;
  }

 private:
  void find_holders() {
    holders_.resize(stages_);
    const auto add = [&](std::size_t stage, WorkerId worker) {
      if (!is_lost(worker.index())) holders_[stage].push_back(worker.index());
    };
    for (const auto& row : task_.healthy.placement.worker_of)
      for (std::size_t s = 0; s < stages_; ++s) add(s, row[s]);
    for (const ExtraCopy& copy : task_.extra_copies) add(copy.stage.index(), copy.worker);
    std::vector<std::size_t> missing;
    for (std::size_t s = stages_; s-- > 0;) {
      std::ranges::sort(holders_[s]);
      holders_[s].erase(std::unique(holders_[s].begin(), holders_[s].end()), holders_[s].end());
      if (holders_[s].empty()) missing.insert(missing.begin(), s);
      // The loop goes from the last stage to the first, so the lowest stage of a worker decides when it can start.
      for (const std::size_t w : holders_[s]) start_[w] = times_[s].before;
    }
    if (missing.empty()) return;
    reject("no worker is left that holds stage{} {}", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
  }

  void require_blocks() const {
    for (std::size_t p = 0; p < members_.size(); ++p) {
      if (std::ssize(members_[p]) % task_.block_size == 0) continue;
      reject("replica {} has {} micro-batches, which are no whole number of blocks of {}", p, members_[p].size(),
             task_.block_size);
    }
  }

  void assign_healthy() {
    for (std::size_t p = 0; p < members_.size(); ++p) {
      for (std::size_t s = 0; s < stages_; ++s) {
        const std::size_t worker = task_.healthy.placement.worker_of[p][s].index();
        Demand& demand = demands_.emplace_back();
        demand = {.healthy = worker,
                  .moves = task_.speeds[worker] < 1 || !task_.extra_copies.empty(),
                  .counts = std::vector<std::int64_t>(holders_[s].size(), 0)};
        for (std::size_t h = 0; h < holders_[s].size(); ++h) {
          const std::size_t holder = holders_[s][h];
          held_[holder].push_back({demands_.size() - 1, h});
          if (holder == worker) add(demands_.size() - 1, h, blocks_of(p));
        }
      }
    }
  }

  [[nodiscard]] std::int64_t blocks_of(std::size_t path) const { return std::ssize(members_[path]) / task_.block_size; }
  [[nodiscard]] std::size_t holder_of(std::size_t demand, std::size_t h) const { return holders_[demand % stages_][h]; }
  [[nodiscard]] bool is_lost(std::size_t worker) const { return task_.speeds[worker] == 0; }
  [[nodiscard]] double end_of(std::size_t worker) const { return start_[worker] + load_[worker]; }
  /// Time of a block of the demand on the worker
  [[nodiscard]] double block_time(std::size_t demand, std::size_t worker) const {
    return times_[demand % stages_].ops * static_cast<double>(task_.block_size) / task_.speeds[worker];
  }

  void add(std::size_t demand, std::size_t h, std::int64_t blocks) {
    demands_[demand].counts[h] += blocks;
    blocks_[demand % stages_][h] += blocks;
    const std::size_t worker = holder_of(demand, h);
    load_[worker] += static_cast<double>(blocks) * block_time(demand, worker);
  }

  /// Whether the holder is in the group of the demand's path
  [[nodiscard]] bool is_near(std::size_t demand, std::size_t h) const {
    return holder_of(demand, h) / group_size_ == demands_[demand].healthy / group_size_;
  }

  /// Returns a key that is small for a good holder. Variants other than 0 break ties by a hash.
  [[nodiscard]] std::pair<double, std::uint64_t> merit(std::size_t d, std::size_t h, std::int64_t block) const {
    std::uint64_t tie = is_near(d, h) ? 0 : 1;
    if (task_.variant > 0) {
      for (const std::uint64_t part : {task_.variant, std::uint64_t{d}, std::uint64_t{h}, std::uint64_t(block)}) {
        tie = (tie ^ part) * 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
        tie ^= tie >> 32U;
      }
    }
    const std::size_t worker = holder_of(d, h);
    // A slow worker is rated by its end with the block, a healthy one by its end without it: the healthy one is
    // preferred.
    return {task_.speeds[worker] == 1 ? end_of(worker) : end_of(worker) + block_time(d, worker), tie};
  }

  void assign_lost(std::size_t d) {
    if (!is_lost(demands_[d].healthy)) return;
    for (std::int64_t block = 0; block < blocks_of(d / stages_); ++block) {
      std::size_t best = 0;
      for (std::size_t h = 1; h < demands_[d].counts.size(); ++h)
        if (merit(d, h, block) < merit(d, best, block)) best = h;
      add(d, best, 1);
    }
  }

  /// Moves a block of the stage to the copy, from the holder with most.
  void use_copy(const ExtraCopy& copy) {
    const std::size_t stage = copy.stage.index();
    const auto& holders = holders_[stage];
    const auto& blocks = blocks_[stage];
    const auto h = static_cast<std::size_t>(std::ranges::find(holders, copy.worker.index()) - holders.begin());
    const auto from = static_cast<std::size_t>(std::ranges::max_element(blocks) - blocks.begin());
    if (blocks[h] > 0 || blocks[from] < 2) return;
    std::size_t demand = stage;
    while (demands_[demand].counts[from] == 0) demand += stages_;
    add(demand, from, -1);
    add(demand, h, 1);
  }

  // Moves a block off the worker that ends last. Its new holder may have to move another block, and so on: the search
  // finds a shortest chain of moves to a worker that still ends earlier than the first one did. If there is no chain,
  // and blocks of all stages take equal times, no assignment has a smaller maximum.
  /// Returns whether there was a chain.
  bool relieve_busiest() {
    std::size_t busiest = 0;
    for (std::size_t w = 1; w < load_.size(); ++w)
      if (end_of(w) > end_of(busiest)) busiest = w;
    std::vector<Step> step_to(load_.size());
    std::vector<double> gained(load_.size(), 0);  // Time of the block that the chain brings
    std::vector<bool> reached(load_.size(), false);
    std::vector<std::size_t> open = {busiest};
    reached[busiest] = true;
    for (std::size_t next = 0; next < open.size(); ++next) {
      for (const Held& held : held_[open[next]]) {
        const Demand& demand = demands_[held.demand];
        if (!demand.moves || demand.counts[held.holder] == 0) continue;
        if (blocks_[held.demand % stages_][held.holder] == 1) continue;  // A holder keeps some work
        const std::size_t giver = open[next];
        // Within a chain, a worker gets one block and gives another. It must not end as late as the busiest worker does
        // now.
        const double change = gained[giver] - block_time(held.demand, giver);
        if (change > kTiny && end_of(giver) + change > end_of(busiest) - kTiny) continue;
        for (std::size_t h = 0; h < demand.counts.size(); ++h) {
          const std::size_t worker = holder_of(held.demand, h);
          if (reached[worker]) continue;
          reached[worker] = true;
          step_to[worker] = {held.demand, held.holder, h};
          gained[worker] = block_time(held.demand, worker);
          if (end_of(worker) + gained[worker] < end_of(busiest) - kTiny) {
            move_along(step_to, busiest, worker);
            return true;
          }
          open.push_back(worker);
        }
      }
    }
    return false;
  }

  void move_along(const std::vector<Step>& step_to, std::size_t first, std::size_t last) {
    while (last != first) {
      const Step& step = step_to[last];
      add(step.demand, step.from, -1);
      add(step.demand, step.to, 1);
      last = holder_of(step.demand, step.from);
    }
  }

  /// Returns the runs of blocks of a path at a stage: the healthy holder's first, then those in the same group.
  [[nodiscard]] std::vector<Run> runs_of(std::size_t d) const {
    const Demand& demand = demands_[d];
    std::vector<std::size_t> order;
    for (std::size_t h = 0; h < demand.counts.size(); ++h)
      if (demand.counts[h] > 0) order.push_back(h);
    std::ranges::stable_sort(
        order, {}, [&](std::size_t h) { return std::pair(holder_of(d, h) != demand.healthy, !is_near(d, h)); });
    std::vector<Run> runs;
    std::int64_t end = 0;
    for (const std::size_t h : order) runs.push_back({holder_of(d, h), end += demand.counts[h]});
    // A path without micro-batches needs a worker all the same.
    if (runs.empty()) runs.push_back({is_lost(demand.healthy) ? holder_of(d, 0) : demand.healthy, 0});
    return runs;
  }

  /// Adds the path's detours to the routes.
  void lay_out(std::size_t path, Routes& routes) const {
    std::vector<std::vector<Run>> runs;  // [stage]
    // A detour ends where any stage of the path goes on with another worker.
    std::set<std::int64_t> ends;  // Of detours, in blocks
    for (std::size_t s = 0; s < stages_; ++s)
      for (const Run& run : runs.emplace_back(runs_of(path * stages_ + s))) ends.insert(run.end);
    std::vector<Turn> turns;
    std::int64_t begin = 0;
    for (const std::int64_t end : ends) {
      const ReplicaId replica(static_cast<std::int64_t>(routes.placement.num_replicas()));
      auto& row = routes.placement.worker_of.emplace_back();
      for (const auto& of_stage : runs) {
        const auto run = std::ranges::find_if(of_stage, [&](const Run& each) { return each.end >= end; });
        row.emplace_back(static_cast<std::int64_t>(run->worker));
      }
      const std::int64_t count = (end - begin) * task_.block_size;
      for (std::int64_t i = 0; i < count; ++i) {
        const MicroBatchId id = members_[path][static_cast<std::size_t>(begin * task_.block_size + i)];
        routes.replica_of[id.index()] = replica;
        // Each detour is spread evenly over the order of the path: its i-th of n micro-batches comes at (i + 1/2) / n
        // of the way. The common factor 2 changes no order.
        turns.push_back({static_cast<double>(2 * i + 1) / static_cast<double>(count), id});
      }
      begin = end;
    }
    std::ranges::stable_sort(turns, {}, &Turn::part);
    for (std::size_t i = 0; i < turns.size(); ++i) routes.place_of[turns[i].micro_batch.index()] = members_[path][i];
  }

  const RouteTask& task_;
  std::size_t stages_ = static_cast<std::size_t>(task_.healthy.stages);
  std::size_t group_size_ = static_cast<std::size_t>(workers_per_group(task_.healthy));        // D
  std::vector<std::vector<MicroBatchId>> members_ = micro_batches_of_replicas(task_.healthy);  // [path], ascending
  std::vector<double> load_;                       // [worker]: time of its ops
  std::vector<double> start_;                      // [worker]: time before its first possible op
  std::vector<std::vector<Held>> held_;            // [worker]
  std::vector<std::vector<std::size_t>> holders_;  // [stage]: its workers, ascending
  std::vector<std::vector<std::int64_t>> blocks_;  // [stage][holder]
  std::vector<Demand> demands_;                    // [path * stages + stage]
  std::vector<StageTime> times_ = task_.times;     // [stage]
};

}  // namespace

Routes find_routes(const RouteTask& task) { return Routing(task).run(); }

}  // namespace chimera
