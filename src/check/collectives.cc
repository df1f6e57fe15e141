// `Collectives` counts starts of all-reduces and arrivals at sums while the program runs. The functions behind it
// explain why the run stands still: awaited_workers() gives the edges of a graph of waiting workers, and
// report_deadlock() looks for a cycle in it.

#include "check/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "check/wait_cycle.h"

namespace chimera {

Collectives::Collectives(const Program& program)
    : groups_(gradient_groups(program.placement, program.tied)),
      tied_(tied_matrix(program.stages)),
      held_(program.workers.size()),
      order_(program.workers.size()),
      num_started_(groups_.size(), 0),
      steps_(program.steps),
      arrivals_(program.workers.size(), 0),
      num_arrived_(static_cast<std::size_t>(program.steps), 0) {
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const WorkerId member : groups_[g])
      held_[member.index()].push_back({ParameterGroupId(static_cast<std::int64_t>(g))});
  for (std::size_t w = 0; w < held_.size(); ++w) num_joining_ += joins(w) ? 1 : 0;
}

const Collectives::Held* Collectives::find(std::size_t worker, ParameterGroupId group) const {
  const auto& held = held_[worker];
  // The constructor adds the groups of a worker in ascending order.
  const auto found =
      std::lower_bound(held.begin(), held.end(), group, [](const Held& a, ParameterGroupId b) { return a.group < b; });
  return found != held.end() && found->group == group ? &*found : nullptr;
}

// A sum of one member needs no partner, so it cannot be in a cycle of orders.
bool Collectives::start(std::size_t worker, ParameterGroupId group) {
  own(worker, group)->has_started = true;
  if (members(group).size() > 1) order_[worker].push_back(group);
  ++num_started_[group.index()];
  return is_complete(group);
}

void Collectives::restart(std::size_t worker, ParameterGroupId group) {
  // As before the first all-reduce: neither started nor awaited.
  *own(worker, group) = {group};
  --num_started_[group.index()];
}

void Collectives::arrive(std::size_t worker) { ++num_arrived_[static_cast<std::size_t>(arrivals_[worker]++)]; }

// A worker that has joined fewer steps is the one that the others wait for.
std::vector<std::size_t> Collectives::first_missing(std::size_t worker, std::size_t most) const {
  std::vector<std::size_t> missing;
  for (std::size_t w = 0; w < arrivals_.size() && missing.size() < most; ++w)
    if (joins(w) && arrivals_[w] < arrivals_[worker]) missing.push_back(w);
  return missing;
}

std::vector<ParameterGroupId> Collectives::unfinished(std::size_t worker, bool every_stage) const {
  std::vector<ParameterGroupId> groups;
  for (const Held& held : held_[worker]) {
    const bool is_due = every_stage || members(held.group).size() > 1 || held.group == tied_;
    if (is_due && !(held.has_started && held.has_waited)) groups.push_back(held.group);
  }
  return groups;
}

// Neighbors in each worker's order are the edges of a graph of groups. A cycle in it means that no order of all groups
// agrees with all workers, so a backend with one queue per worker can block. Edges between neighbors suffice, because
// others follow from them.
void Collectives::check_order(Findings& findings) const {
  Graph later(groups_.size());
  for (const auto& groups : order_)
    for (std::size_t i = 1; i < groups.size(); ++i)
      later[groups[i - 1].index()].push_back(static_cast<std::uint32_t>(groups[i].index()));
  const auto cycle = shortest_cycle(later);
  if (cycle.empty()) return;
  std::string message = "a cycle in the order of all-reduces, which can deadlock: ";
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const std::array edge{ParameterGroupId(cycle[i]), ParameterGroupId(cycle[(i + 1) % cycle.size()])};
    const auto has_edge = [&](const std::vector<ParameterGroupId>& groups) {
      return std::search(groups.begin(), groups.end(), edge.begin(), edge.end()) != groups.end();
    };
    // Every edge of the graph comes from the order of some worker.
    const auto worker = std::find_if(order_.begin(), order_.end(), has_edge) - order_.begin();
    message += fmt::format("{}worker {} starts the all-reduce of stage {} before the all-reduce of stage {}",
                           i == 0 ? "" : "; ", worker, edge[0].value(), edge[1].value());
  }
  findings.add_text(ViolationKind::AllReduceOrder, "{}", message);
}

namespace {

/// Maximum number of workers that a worker in ReduceScalars waits for, to keep the graph linear.
constexpr std::size_t kMaxMissing = 64;

/// Returns the workers that `worker`, stuck at `instruction`, waits for.
std::vector<std::uint32_t> awaited_workers(std::size_t worker, const Instruction& instruction,
                                           const Collectives& collectives) {
  std::vector<std::uint32_t> others;
  const auto add = [&](std::size_t other) { others.push_back(static_cast<std::uint32_t>(other)); };
  if (is_transfer(instruction.kind)) {
    add(instruction.peer.index());
  } else if (instruction.kind == InstructionKind::ReduceScalars) {
    for (const std::size_t missing : collectives.first_missing(worker, kMaxMissing)) add(missing);
  } else {
    // The remaining instruction that blocks is WaitAllReduce.
    for (const WorkerId member : collectives.members(instruction.group))
      if (!collectives.find(member.index(), instruction.group)->has_started) add(member.index());
  }
  return others;
}

}  // namespace

bool report_deadlock(const Program& program, const std::vector<std::size_t>& next, const Collectives& collectives,
                     Findings& findings) {
  const auto is_stuck = [&](std::size_t worker) { return next[worker] < program.workers[worker].size(); };
  Graph waits_for(next.size());
  bool any_stuck = false;
  for (std::size_t w = 0; w < next.size(); ++w) {
    if (!is_stuck(w)) continue;
    any_stuck = true;
    waits_for[w] = awaited_workers(w, program.workers[w][next[w]], collectives);
  }
  if (!any_stuck) return false;
  std::vector<std::uint32_t> workers = shortest_cycle(waits_for);
  // Without a cycle, some worker waits for a worker that has ended and will never answer.
  std::optional<std::size_t> ended;
  for (std::uint32_t w = 0; w < waits_for.size() && workers.empty(); ++w) {
    const auto found = std::ranges::find_if_not(waits_for[w], is_stuck);
    if (found == waits_for[w].end()) continue;
    workers = {w};
    ended = *found;
  }
  std::string message = ended ? "deadlock: " : fmt::format("deadlock, a cycle of {} workers: ", workers.size());
  std::vector<Place> places;
  for (const std::uint32_t w : workers) {
    message += fmt::format("{}worker {} is stuck at instruction {} ({})", places.empty() ? "" : "; ", w, next[w],
                           to_text(program.workers[w][next[w]], program.slices));
    places.push_back({w, next[w]});
  }
  if (ended) message += fmt::format("; worker {} has ended", *ended);
  findings.add(ViolationKind::Deadlock, places, [&] { return message; });
  return true;
}

}  // namespace chimera
