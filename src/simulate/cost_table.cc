// CostTable's constructor first refuses costs that do not fit the schedule (require_valid()), with the name of the
// wrong value: all later code may then rely on the lengths of the lists and on finite times of 0 or more.

#include "simulate/cost_table.h"

#include <cmath>
#include <functional>
#include <utility>

#include "core/mapped.h"
#include "core/reject.h"

namespace chimera {
namespace {

/// Throws ConfigError unless these are `count` finite numbers of 0 or more.
void require_list(const std::string& what, const std::vector<double>& values, std::int64_t count) {
  if (std::ssize(values) != count) reject("{}: {} entries, but the schedule needs {}", what, values.size(), count);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]) || values[i] < 0)
      reject("{} [{}]: {} is not a finite number of 0 or more", what, i, values[i]);
}

void require_optional_list(const std::string& what, const std::vector<double>& values, std::int64_t count) {
  if (!values.empty()) require_list(what, values, count);
}

void require_matrix(const std::string& what, const std::vector<std::vector<double>>& rows, std::size_t workers) {
  if (rows.size() != workers) reject("{}: {} rows, but the schedule has {} workers", what, rows.size(), workers);
  for (std::size_t from = 0; from < workers; ++from)
    require_list(fmt::format("{}, row {}", what, from), rows[from], static_cast<std::int64_t>(workers));
}

void require_links(const LinkCosts& links, const Schedule& schedule) {
  const std::int64_t boundaries = schedule.stages - 1;
  require_list("links: alpha and beta", {links.alpha, links.beta}, 2);
  require_optional_list("links: seconds", links.seconds, boundaries);
  require_optional_list("links: copies", links.copies, boundaries);
  require_optional_list("links: bursts", links.bursts, boundaries);
  // Bytes are required only if a beta multiplies them.
  if (!links.matrix) {
    if (links.seconds.empty()) require_list("links: bytes", links.bytes, boundaries);
    return;
  }
  require_matrix("links: alphas", links.matrix->alphas, schedule.workers.size());
  if (!links.matrix->needs_bytes()) return;
  require_matrix("links: betas", links.matrix->betas, schedule.workers.size());
  require_list("links: bytes (betas need them)", links.bytes, boundaries);
}

void require_all_reduce(const AllReduceCosts& costs, std::int64_t stages) {
  const std::int64_t groups = costs.num_groups(stages);
  require_list("all-reduce: alpha and beta", {costs.alpha, costs.beta}, 2);
  require_optional_list("all-reduce: seconds", costs.seconds, groups);
  if (costs.seconds.empty()) require_list("all-reduce: bytes", costs.bytes, groups);
}

void require_slices(const SliceCosts& slices, std::int64_t count) {
  if (!std::isfinite(slices.attention) || slices.attention < 0 || slices.attention > 1)
    reject("attention: {} is not 0 to 1", slices.attention);
  const auto& bounds = slices.bounds;
  if (bounds.empty()) return;
  if (static_cast<std::int64_t>(bounds.size()) != count + 1)
    reject("slices: {} lengths, but the schedule has {} slices", bounds.size() - 1, count);
  const bool ascends = bounds.front() == 0 && bounds.back() == 1 &&
                       std::ranges::adjacent_find(bounds, std::greater_equal<>{}) == bounds.end();
  if (!ascends) throw ConfigError("slices: the bounds do not ascend from 0 to 1");
}

/// Factors of one step or one group repeat for all.
void require_factors(const std::string& what, const std::vector<double>& factors, std::int64_t count) {
  const std::int64_t given = std::ssize(factors);
  if (given == 0) return;
  require_list(what, factors, count % given == 0 ? given : count);
  for (const double factor : factors)
    if (factor == 0) reject("{}: a factor of 0; factors are above 0", what);
}

const CostModel& require_valid(const Schedule& schedule, const CostModel& model) {
  const std::int64_t stages = schedule.stages;
  for (const auto time : kStageTimes) require_list("times of stages", mapped(model.stages, time), stages);
  require_list("latency and pair", {model.latency, model.pair.value_or(0)}, 2);
  require_optional_list("optimizer", model.optimizer, stages);
  require_optional_list("recompute", model.recompute, stages);
  if (model.offload) {
    require_list("offload: beta", {model.offload->beta}, 1);
    require_list("offload: bytes", model.offload->bytes, stages);
  }
  for (const auto bytes : {&StageMemory::weights, &StageMemory::gradients, &StageMemory::optimizer,
                           &StageMemory::activations, &StageMemory::boundary, &StageMemory::keys_and_values})
    require_optional_list("memory of stages", mapped(model.memory, bytes), stages);
  require_factors("workers", model.workers, std::ssize(schedule.workers));
  require_factors("micro_batches", model.micro_batches, schedule.micro_batches);
  if (schedule.slices > 1) require_slices(model.slices, schedule.slices);
  if (model.links) require_links(*model.links, schedule);
  if (model.all_reduce) require_all_reduce(*model.all_reduce, stages);
  return model;
}

// Rabenseifner's algorithm (Thakur et al., IJHPCA 2005): reduce-scatter and all-gather
// each take log2(p) latencies and send (p - 1) / p of the bytes. Only the first half runs if the optimizer is sharded.
/// Returns the all-reduce time of each parameter group; 0 for a single copy.
std::vector<double> all_reduce_times(const Schedule& schedule, const AllReduceCosts& costs) {
  const auto groups = gradient_groups(schedule.placement, costs.tied);
  const bool measured = !costs.seconds.empty();
  const double halves = costs.reduce_scatter ? 1 : 2;
  std::vector<double> times(groups.size());
  for (std::size_t s = 0; s < groups.size(); ++s) {
    if (schedule.updates && groups[s].size() > 1) {
      reject(
          "all-reduce: stage {} of asynchronous '{}' is on {} workers, which update at different times; leave out "
          "all_reduce",
          s, schedule.name, groups[s].size());
    }
    const auto copies = static_cast<double>(groups[s].size()) * static_cast<double>(costs.data_parallel);
    if (copies <= 1) continue;
    times[s] = measured ? costs.seconds[s]
                        : halves * std::log2(copies) * costs.alpha +
                              halves * (copies - 1) / copies * costs.beta * costs.bytes[s];
  }
  return times;
}

}  // namespace

OpScale::OpScale(const Schedule& schedule, const CostModel& model)
    : stages_(static_cast<std::size_t>(schedule.stages)), micro_batches_(model.micro_batches) {
  const bool is_cut = schedule.slices > 1;
  // [slice]: the part of a full micro-batch's time and bytes.
  times_ = is_cut ? parts_of_time(model.slices, schedule.slices) : std::vector<double>{1};
  bytes_ = is_cut ? parts_of_tokens(model.slices, schedule.slices) : std::vector<double>{1};
  for (auto* const parts : {&times_, &bytes_})
    for (double& part : *parts) part *= schedule.micro_batch_scale;
  if (model.workers.empty()) return;
  for (const auto& row : schedule.placement.worker_of) {
    // Factors of one data-parallel group repeat for every group.
    for (const WorkerId worker : row) workers_.push_back(model.workers[worker.index() % model.workers.size()]);
  }
}

CostTable::CostTable(const Schedule& schedule, const CostModel& model)
    : stages_(model.stages.size()),
      slices_(schedule.slices),
      scale_(schedule, require_valid(schedule, model)),
      recomputations_(model.recompute),
      optimizer_(model.optimizer),
      delay_(model.latency),
      blocking_sends_(model.blocking_sends),
      steps_overlap_(model.steps_overlap) {
  // Without pairs in the schedule, the simulators need not look for them.
  if (model.pair && has_pairs(schedule)) pair_ = model.pair;
  for (const StageCosts& stage : model.stages)
    for (const auto time : kStageTimes) durations_.push_back(stage.*time);
  if (model.offload) add_offloads(*model.offload);
  if (model.links) add_links(schedule, *model.links);
  if (!model.all_reduce) return;
  all_reduces_ = all_reduce_times(schedule, *model.all_reduce);
  sums_ = {.every_stage = model.all_reduce->every_stage || model.all_reduce->data_parallel > 1,
           .placement = model.all_reduce_placement,
           .tied = model.all_reduce->tied};
}

void CostTable::add_offloads(const OffloadCosts& costs) {
  for (std::size_t s = 0; s < costs.bytes.size(); ++s) {
    if (costs.bytes[s] > 0) offloaded_.emplace(static_cast<std::int64_t>(s));
    offloads_.push_back(costs.beta * costs.bytes[s]);
  }
}

/// Recomputation comes before the pair and does not overlap.
double CostTable::duration_together(std::span<const Op> pair) const {
  double in_order = 0;
  double longest = 0;
  for (const Op& op : pair) {
    const double time = duration(op) - recomputation(op);
    in_order += time;
    longest = std::max(longest, time);
  }
  // No overlap makes a pair shorter than its longer op.
  return recomputation(pair) + std::max(pair_.value_or(1) * in_order, longest);
}

/// In a pair, an op's share is at least `pair` times its own time, as both together take `pair` times their sum.
double CostTable::least_duration(const Op& op) const {
  const double part = op.kind == OpKind::BackwardWeight ? 1 : std::min(1.0, pair_.value_or(1));
  const double again = recomputation(op);
  return again + part * (duration(op) - again);
}

void CostTable::add_links(const Schedule& schedule, const LinkCosts& links) {
  if (!links.copies.empty()) add_copies(schedule, links);
  if (links.matrix) return add_matrix(schedule, links);
  delay_ += links.alpha;
  // A link that takes no time never has a queue. Without traffic, messages are a delay and no events.
  if (links.beta == 0 && links.seconds.empty()) return;
  link_times_ = links.times();
  bursts_ = links.bursts;
}

/// An op pays for the copies of the message that it receives and of the message that it sends.
void CostTable::add_copies(const Schedule& schedule, const LinkCosts& links) {
  for (const auto& row : schedule.placement.worker_of) {
    const auto over = [&](std::size_t boundary) {
      return row[boundary] == row[boundary + 1] ? 0 : links.copies[boundary];
    };
    for (std::size_t s = 0; s < row.size(); ++s) {
      const double both = (s > 0 ? over(s - 1) : 0) + (s + 1 < row.size() ? over(s) : 0);
      copies_.insert(copies_.end(), 2, both);  // gradients return over the same boundaries
    }
  }
}

/// Each replica's boundary has its own pair of workers, and each direction its own link.
void CostTable::add_matrix(const Schedule& schedule, const LinkCosts& links) {
  const LinkMatrix& matrix = *links.matrix;
  for (const auto& row : schedule.placement.worker_of) {
    for (std::size_t b = 0; b + 1 < row.size(); ++b) {
      for (const auto& [from, to] : {std::pair(row[b], row[b + 1]), std::pair(row[b + 1], row[b])}) {
        delays_.push_back(delay_ + matrix.alphas[from.index()][to.index()]);
        double seconds = links.seconds.empty() ? 0 : links.seconds[b];
        if (matrix.needs_bytes()) seconds = matrix.betas[from.index()][to.index()] * links.bytes[b];
        link_times_.push_back(seconds);
      }
    }
  }
}

std::vector<double> CostTable::updates(const Schedule& schedule) const {
  std::vector<double> times(schedule.workers.size(), 0);
  const auto holders = stage_groups(schedule.placement);
  for (std::size_t s = 0; s < holders.size(); ++s)
    for (const WorkerId worker : holders[s]) times[worker.index()] += optimizer(StageId(static_cast<std::int64_t>(s)));
  return times;
}

}  // namespace chimera
