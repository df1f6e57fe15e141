#pragma once

// Costs of messages and all-reduces between a candidate's ranks. Ranks fill the nodes of the machine in order, so the
// replica layout (near or far, schedule/rank_layout.h) decides which messages and all-reduces leave a node. Links
// between nodes have other times than links within a node. Each link has a latency alpha, a time per byte beta, and a
// burst, the bytes that an idle link passes without that time (LinkTimes in machine.h). stage_model.cc makes a
// StageLinks for a candidate, and adds its costs to the times of layers.

#include <algorithm>
#include <map>

#include "model_config/footprint.h"
#include "plan/candidate.h"
#include "schedule/rank_layout.h"
#include "simulate/contention.h"
#include "simulate/costs.h"

namespace chimera {

/// Costs of the all-reduces of gradients.
struct SumCosts {
  AllReduceCosts all_reduce = {};
  NodePlacement nodes = {};    // empty: all workers are on one node
  double computing_share = 1;  // fraction of the all-reduces' time that uses cores, 0 to 1
};

/// Links of one candidate. *Near* means: within a node. A *boundary* is the place between two consecutive stages, where
/// messages pass.
class StageLinks {
 public:
  /// Borrows its arguments.
  StageLinks(const PlanProblem& problem, const Candidate& candidate, const Schedule& schedule)
      : problem_(problem), candidate_(candidate), schedule_(schedule) {}

  /// Returns the number of ranks, in all data-parallel groups, that sum the gradients of a stage.
  [[nodiscard]] std::size_t copies(std::size_t stage) const { return groups_[stage].size(); }
  /// Returns the costs of messages. `memory` is indexed by stage; its boundary is the bytes of the stage's input.
  [[nodiscard]] LinkCosts message_costs(const std::vector<StageMemory>& memory) const {
    const LinkTimes at_ends = copy(!messages_leave_nodes());
    LinkCosts costs;
    costs.alpha = link().alpha;
    costs.beta = link().beta;
    if (machine_.cores > 0) {  // measured message times include the work at both ends
      costs.alpha = std::max(0.0, costs.alpha - 2 * at_ends.alpha);
      costs.beta = std::max(0.0, costs.beta - 2 * at_ends.beta);
    }
    if (shares_cores(problem_)) costs.alpha += machine_.busy_delay;
    for (std::size_t s = 1; s < memory.size(); ++s) {
      const LinkTimes taken = copy(near_[s - 1]);
      costs.bytes.push_back(memory[s].boundary);
      costs.copies.push_back(taken.alpha / schedule_.micro_batch_scale * static_cast<double>(schedule_.slices) +
                             taken.beta * costs.bytes.back());
    }
    if (std::ranges::count(costs.copies, 0) == std::ssize(costs.copies)) costs.copies.clear();
    if (messages_leave_nodes()) take_near_links(costs);
    for (std::size_t s = 0; link().burst > 0 && s < near_.size(); ++s)
      costs.bursts.push_back(near_[s] ? 0 : link().beta * link().burst);
    return costs;
  }
  /// Returns the costs of all-reduces. `footprints` is indexed by stage. `tied_matrix` is the number of parameters, on
  /// each worker, of the matrix that is both token embedding and output matrix; 0: the model has none.
  [[nodiscard]] SumCosts sum_costs(const std::vector<StageFootprint>& footprints, std::int64_t tied_matrix) const {
    const double weight_bytes = static_cast<double>(problem_.workload.weight_bytes);
    const double matrix = static_cast<double>(tied_matrix) * weight_bytes;
    SumCosts sums;
    std::vector<double> summed;  // bytes, [parameter group]
    sums.all_reduce.data_parallel = candidate_.data_parallel;
    for (std::size_t s = 0; s < footprints.size(); ++s) {
      double bytes = static_cast<double>(footprints[s].parameters) * weight_bytes;
      if (uses_tied_matrix(StageId(static_cast<std::int64_t>(s)), schedule_.stages)) bytes -= matrix;
      summed.push_back(std::max(0.0, bytes));
      sums.all_reduce.seconds.push_back(sum_seconds(groups_[s], summed.back()));
    }
    if (problem_.model.tied) {
      summed.push_back(matrix);
      sums.all_reduce.seconds.push_back(sum_seconds(groups_.back(), matrix));
      sums.all_reduce.tied = true;
    }
    if (ranks_.num_ranks() <= places_per_node()) return sums;
    sums.nodes = node_placement();
    sums.computing_share = computing_share(sums.all_reduce, summed);
    return sums;
  }

 private:
  [[nodiscard]] std::int64_t places_per_node() const {
    return std::max<std::int64_t>(1, machine_.workers_per_node / candidate_.tensor_parallel);
  }
  [[nodiscard]] bool messages_leave_nodes() const { return std::ranges::find(near_, false) != near_.end(); }
  [[nodiscard]] const LinkTimes& link() const {
    const LinkProfile& links = machine_.point_to_point;
    return messages_leave_nodes() ? links.between_nodes : links.within_node;
  }
  /// Returns whether messages delay ops, because no core is free for sending and receiving.
  [[nodiscard]] bool messages_take_cores() const {
    const std::int64_t workers = std::min(problem_.workers, machine_.workers_per_node);
    return machine_.cores > 0 && 2 * workers * machine_.threads > machine_.cores;
  }
  /// Returns the compute time that a message costs at each of its ends. If it was not measured, and messages delay ops,
  /// it is half the time of the message. `is_near`: whether both ends are on one node.
  [[nodiscard]] LinkTimes copy(bool is_near) const {
    const bool has_own = !is_near && machine_.node_message_copy != LinkTimes{};
    const LinkTimes& measured = has_own ? machine_.node_message_copy : machine_.message_copy;
    if (machine_.cores > 0 && !messages_take_cores()) return {};
    if (measured != LinkTimes{} || machine_.cores == 0) return measured;
    const LinkTimes& near = machine_.point_to_point.within_node;
    return is_near ? LinkTimes{near.alpha / 2, near.beta / 2} : LinkTimes{};
  }
  [[nodiscard]] bool is_near(std::size_t boundary) const {
    for (const auto& row : schedule_.placement.worker_of) {
      for (std::int64_t group = 0; group < candidate_.data_parallel; ++group) {
        const GroupId id(group);
        if (node_of(ranks_.rank({id, row[boundary]})) != node_of(ranks_.rank({id, row[boundary + 1]}))) return false;
      }
    }
    return true;
  }
  [[nodiscard]] std::int64_t node_of(RankId rank) const { return rank.value() / places_per_node(); }
  [[nodiscard]] std::vector<bool> near_boundaries() const {
    std::vector<bool> near(static_cast<std::size_t>(schedule_.stages - 1), true);
    if (ranks_.num_ranks() <= places_per_node()) return near;
    for (std::size_t boundary = 0; boundary < near.size(); ++boundary) near[boundary] = is_near(boundary);
    return near;
  }
  /// Sets LinkCosts::seconds, with beta of the links within a node at boundaries that lie within a node.
  void take_near_links(LinkCosts& costs) const {
    std::vector<double> seconds = costs.times();
    bool any = false;
    for (std::size_t boundary = 0; boundary < seconds.size(); ++boundary) {
      if (!near_[boundary]) continue;
      seconds[boundary] = machine_.point_to_point.within_node.beta * costs.bytes[boundary];
      any = true;
    }
    if (any) costs.seconds = seconds;
  }
  /// Returns how many of the ranks are on each node if all nodes have equally many, else 1.
  [[nodiscard]] std::int64_t ranks_on_each_node(const std::vector<RankId>& ranks) const {
    std::map<std::int64_t, std::int64_t> counts;
    for (const RankId rank : ranks) ++counts[node_of(rank)];
    const std::int64_t first = counts.begin()->second;
    return std::ranges::all_of(counts, [&](const auto& node) { return node.second == first; }) ? first : 1;
  }
  /// Returns the fraction of an all-reduce's time that summing gradients takes. With a sharded optimizer, only the
  /// reduce-scatter sums gradients; the all-gather comes after the update, and takes as long. If two ranks update each
  /// shard (PlanProblem::second_shards), the ranks need all sums.
  [[nodiscard]] double share_of_all_reduce() const {
    return (problem_.shard_optimizer || candidate_.shard_optimizer) && !problem_.second_shards ? 0.5 : 1;
  }
  /// Returns the seconds in which these ranks sum `bytes` of gradients. Over several nodes, processes sum in two levels
  /// (GlooTransport), and GPUs in as many rings as each node has ranks.
  [[nodiscard]] double sum_seconds(const std::vector<RankId>& ranks, double bytes) const {
    const auto& [within, between] = machine_.all_reduce;
    const auto count = static_cast<std::int64_t>(ranks.size());
    const double share = share_of_all_reduce();
    if (!is_over_nodes(ranks)) return share * chimera::sum_seconds(machine_, within, count, bytes);
    const std::int64_t near = ranks_on_each_node(ranks);
    if (machine_.cores == 0) return share * chimera::sum_seconds(machine_, link_of_rings(machine_, near), count, bytes);
    const double on_each = near > 1 ? chimera::sum_seconds(machine_, within, near, bytes) : 0;
    return share * (on_each + chimera::sum_seconds(machine_, between, count / near, bytes));
  }
  [[nodiscard]] bool is_over_nodes(const std::vector<RankId>& ranks) const {
    return node_of(ranks.front()) != node_of(ranks.back());  // ascending
  }
  [[nodiscard]] NodePlacement node_placement() const {
    const auto node = [&](std::int64_t group, std::int64_t worker) {
      return node_of(ranks_.rank({GroupId(group), WorkerId(worker)}));
    };
    NodePlacement nodes;
    std::vector<std::int64_t> known;
    for (std::int64_t worker = 0; worker < ranks_.workers; ++worker) {
      const auto own = std::ranges::find(known, node(0, worker));
      nodes.node_of.push_back(static_cast<std::size_t>(own - known.begin()));
      if (own == known.end()) known.push_back(node(0, worker));
      int copies = 0;
      for (std::int64_t group = 0; group < ranks_.data_parallel; ++group)
        copies += node(group, worker) == node(0, worker) ? 1 : 0;
      nodes.copies.push_back(copies);
    }
    for (const auto& ranks : groups_) nodes.sums_leave.push_back(is_over_nodes(ranks));
    return nodes;
  }
  /// Returns SumCosts::computing_share: the all-reduces' time if all ranks were on one node, divided by their time.
  [[nodiscard]] double computing_share(const AllReduceCosts& costs, const std::vector<double>& bytes) const {
    double computing = 0;
    double all = 0;
    const auto add = [&](const std::vector<RankId>& ranks, double seconds, double of_ranks) {
      const auto count = static_cast<std::int64_t>(ranks.size());
      const double near = chimera::sum_seconds(machine_, machine_.all_reduce.within_node, count, of_ranks);
      computing += std::min(seconds, share_of_all_reduce() * near);
      all += seconds;
    };
    for (std::size_t s = 0; s < costs.seconds.size(); ++s) add(groups_[s], costs.seconds[s], bytes[s]);
    return all > 0 ? computing / all : 1;
  }

  const PlanProblem& problem_;
  const MachineProfile& machine_ = problem_.machine;
  const Candidate& candidate_;
  const Schedule& schedule_;
  RankLayout ranks_{static_cast<std::int64_t>(schedule_.workers.size()), candidate_.data_parallel,
                    candidate_.replica_layout};
  RankGroups groups_ = ranks_.ranks_of(gradient_groups(schedule_.placement, problem_.model.tied));  // [parameter group]
  std::vector<bool> near_ = near_boundaries();  // [s]: whether all messages between stages s and s+1 stay within a node
};

}  // namespace chimera
