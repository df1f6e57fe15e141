// For each worker, held_by() records what is held during each op, and first_excess() finds the first op above a limit.
// check_sample_order() is a check of its own: it follows the micro-batches of each copy of a stage.

#include "check/check_limits.h"

#include <algorithm>

#include "check/violation.h"
#include "schedule/activations.h"
#include "schedule/dependencies.h"
#include "schedule/weight_versions.h"

namespace chimera {
namespace {

/// Allows for rounding in sums of a few thousand shares.
constexpr double kRounding = 1e-9;

/// What a worker holds during each op.
struct Held {
  std::vector<double> activations;  // [op], stage units
  std::vector<double> weights;      // [op], shares
};

// Walks a worker's list in order. That is enough, because the amounts change only when the worker's own ops start and
// end: no simulation is needed, and the result holds for all op times.
Held held_by(const Schedule& schedule, std::size_t worker, std::int64_t stages) {
  // Size of a stage, in shares, and of a slice, in full micro-batches
  const double unit = static_cast<double>(workers_per_group(schedule)) / static_cast<double>(schedule.stages);
  const double slice = schedule.micro_batch_scale / static_cast<double>(schedule.slices);
  const auto& ops = schedule.workers[worker];
  Held held{std::vector<double>(ops.size()), std::vector<double>(ops.size())};
  // Versions that later ones have replaced, but that ops still use
  std::vector<std::int64_t> older(ops.size() + 1, 0);
  for (const VersionChange& change : version_changes(schedule, worker)) older[change.after] += change.change;
  double in_flight = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (i > 0) older[i] += older[i - 1];
    const ActivationChange change = activation_change(ops[i].kind, {});
    in_flight += change.at_start;
    held.activations[i] = in_flight * unit * slice;
    held.weights[i] = static_cast<double>(stages + older[i]) * unit;
    in_flight += change.at_end;
  }
  return held;
}

/// A worker's first op over the limit, and its largest amount.
struct Excess {
  Place place;
  double amount = 0;
  double most = 0;
};

std::optional<Excess> first_excess(std::size_t worker, const std::vector<double>& amounts, double limit) {
  const auto over = [&](double amount) { return amount > limit * (1 + kRounding); };
  const auto first = std::find_if(amounts.begin(), amounts.end(), over);
  if (first == amounts.end()) return std::nullopt;
  return Excess{
      {worker, static_cast<std::size_t>(first - amounts.begin())}, *first, *std::max_element(first, amounts.end())};
}

// The first op in time to break a limit is the cause; others often follow from it.
void sort_by_start(const Schedule& schedule, std::vector<Violation>& violations) {
  if (violations.size() < 2) return;
  const OpTable table(schedule);
  const auto starts = unit_start_times(table);
  std::stable_sort(violations.begin(), violations.end(), [&](const Violation& a, const Violation& b) {
    const auto start = [&](const Violation& v) {
      return starts[table.first(v.places[0].worker) + static_cast<OpIndex>(v.places[0].position)];
    };
    return start(a) < start(b);
  });
}

}  // namespace

std::vector<Violation> check_limits(const Schedule& schedule, const Limits& limits) {
  std::vector<Violation> violations;
  const auto held_stages = stages_held(schedule);
  const auto report = [&](ViolationKind kind, const Excess& excess, const char* of, double limit) {
    violations.push_back({kind,
                          fmt::format("{}: {:.10g} {}, {:.10g} allowed; the worker's most is {:.10g}",
                                      describe_op(schedule, excess.place), excess.amount, of, limit, excess.most),
                          {excess.place}});
  };
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    Held held = held_by(schedule, w, held_stages[w]);
    if (limits.in_flight) {
      const auto excess = first_excess(w, held.activations, *limits.in_flight);
      if (excess) report(ViolationKind::OverInFlight, *excess, "stage units in flight", *limits.in_flight);
    }
    if (!limits.memory) continue;
    // From here on, `held.weights` has bytes: of weights and activations together.
    for (std::size_t i = 0; i < held.weights.size(); ++i)
      held.weights[i] =
          held.weights[i] * limits.memory->weight_bytes + held.activations[i] * limits.memory->activation_bytes;
    const auto excess = first_excess(w, held.weights, limits.memory->bytes);
    if (excess) report(ViolationKind::OverMemory, *excess, "bytes held", limits.memory->bytes);
  }
  sort_by_start(schedule, violations);
  return violations;
}

// Sums of floating-point numbers depend on their order. A run adds gradients in the order of its ops, so equal results
// with other schedules need the order of the samples.
std::vector<Violation> check_sample_order(const Schedule& schedule) {
  Findings findings;
  const auto stages = static_cast<std::size_t>(schedule.stages);
  std::vector<MicroBatchId> newest(schedule.placement.num_replicas() * stages, MicroBatchId(-1));
  std::vector<bool> reported(newest.size(), false);
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      const Op& op = schedule.workers[w][i];
      if (!gives_weight_gradient(op.kind)) continue;
      const std::size_t copy = op.replica.index() * stages + op.stage.index();
      if (op.micro_batch < newest[copy] && !reported[copy]) {
        reported[copy] = true;
        findings.add_at(schedule, ViolationKind::SampleOrder, {w, i},
                        "accumulates after micro-batch {} of its replica, out of sample order", newest[copy].value());
      }
      newest[copy] = std::max(newest[copy], op.micro_batch);
    }
  }
  return findings.take();
}

}  // namespace chimera
