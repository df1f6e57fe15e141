#pragma once

#include <cstdint>
#include <vector>

#include "model_config/footprint.h"
#include "plan/candidate.h"
#include "schedule/rank_layout.h"
#include "simulate/contention.h"
#include "simulate/costs.h"

// Costs of what a candidate's ranks send each other. Ranks fill the nodes of the machine in order, so the layout
// decides which messages and all-reduces leave a node. Links between nodes have other times than links within a node.
// The stage model (stage_model.h) adds these costs to the times of layers.

namespace chimera {

/// All-reduces of gradients.
struct SumCosts {
  AllReduceCosts all_reduce = {};
  NodePlacement nodes = {};    // empty: all workers are on one node
  double computing_share = 1;  // share of all-reduce time that uses cores: their time on a single node
};

class StageLinks {
 public:
  /// Borrows its arguments.
  StageLinks(const PlanProblem& problem, const Candidate& candidate, const Schedule& schedule);

  /// Returns the ranks that sum the gradients of a stage.
  [[nodiscard]] std::size_t copies(std::size_t stage) const { return groups_[stage].size(); }
  /// `memory`: [stage].
  [[nodiscard]] LinkCosts message_costs(const std::vector<StageMemory>& memory) const;
  /// `tied_matrix`: parameters of the tied matrix on each worker, 0 without one.
  [[nodiscard]] SumCosts sum_costs(const std::vector<StageFootprint>& footprints, std::int64_t tied_matrix) const;

 private:
  [[nodiscard]] std::int64_t places_per_node() const;
  [[nodiscard]] bool messages_leave_nodes() const;
  [[nodiscard]] const LinkTimes& link() const;
  /// Without a free core for sending and receiving, messages delay ops.
  [[nodiscard]] bool messages_take_cores() const;
  /// Returns the compute time at each end of a message. Assumes half the message time if it is not measured and
  /// messages take cores from ops.
  [[nodiscard]] LinkTimes copy(bool is_near) const;
  [[nodiscard]] bool is_near(std::size_t boundary) const;
  [[nodiscard]] std::int64_t node_of(RankId rank) const;
  [[nodiscard]] std::vector<bool> near_boundaries() const;
  void take_near_links(LinkCosts& costs) const;
  void add_bursts(LinkCosts& costs) const;
  /// Returns the ranks per node if it is equal on all nodes, else 1.
  [[nodiscard]] std::int64_t ranks_on_each_node(const std::vector<RankId>& ranks) const;
  /// Share of an all-reduce that sums gradients: shards of the optimizer need only its reduce-scatter, and after the
  /// update as much time for an all-gather.
  [[nodiscard]] double share_of_all_reduce() const;
  [[nodiscard]] double sum_seconds(const std::vector<RankId>& ranks, double bytes) const;
  /// Processes on several nodes all-reduce in two levels (GlooTransport), devices in a ring for each rank of a node.
  [[nodiscard]] double all_reduce_seconds(const std::vector<RankId>& ranks, double bytes) const;
  [[nodiscard]] bool is_over_nodes(const std::vector<RankId>& ranks) const;
  [[nodiscard]] NodePlacement node_placement() const;
  /// Returns the part of the all-reduces that uses cores: their time on a single node.
  [[nodiscard]] double computing_share(const AllReduceCosts& costs, const std::vector<double>& bytes) const;

  const PlanProblem& problem_;
  const MachineProfile& machine_;
  const Candidate& candidate_;
  const Schedule& schedule_;
  RankLayout ranks_;
  RankGroups groups_;       // [parameter group]
  std::vector<bool> near_;  // [boundary]: is_near()
};

}  // namespace chimera
