// panel_of() explains a timeline and adds up what the workers send: messages one by one, all-reduces by their formula.
// Both are in bytes if the costs have sizes, and else in tensors and in gradients of stages.

#include "render/panel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/mapped.h"
#include "simulate/cost_table.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

/// [stage]: bytes of a full micro-batch's input; empty if unknown.
std::vector<double> input_bytes(const CostModel& costs) {
  if (!costs.links) return mapped(costs.memory, &StageMemory::boundary);
  // No message comes to stage 0. The costs of links begin with the boundary behind it.
  std::vector<double> bytes = {0};
  bytes.insert(bytes.end(), costs.links->bytes.begin(), costs.links->bytes.end());
  return bytes;
}

/// Bytes of each stage's gradients, then of the tied matrix's; empty if unknown.
std::vector<double> gradient_bytes(const CostModel& costs) {
  if (costs.all_reduce && !costs.all_reduce->bytes.empty()) return costs.all_reduce->bytes;
  return mapped(costs.memory, &StageMemory::gradients);
}

void add_messages(const Schedule& schedule, const Explanation& explanation, const CostModel& costs, Totals& totals) {
  const auto input = input_bytes(costs);
  const OpScale scale(schedule, costs);
  double bytes = 0;
  for (const Message& message : explanation.messages) {
    const Op& op = schedule.workers[message.from.worker][message.from.position];
    // The gradient of a stage's input is as large as the input.
    const std::size_t stage = op.stage.index() + (op.kind == OpKind::Forward ? 1 : 0);
    if (stage < input.size()) bytes += input[stage] * scale.bytes(op);
  }
  totals.messages = static_cast<std::int64_t>(explanation.messages.size());
  // Counted in tensors of a full micro-batch: a message of a half, or of one of k slices, is a part of one.
  totals.message_volume =
      static_cast<double>(totals.messages) * schedule.micro_batch_scale / static_cast<double>(schedule.slices);
  if (!input.empty()) totals.message_bytes = bytes;
}

// A ring or recursive halving sends 2(r-1)/r of the gradients from each of r copies. The tied matrix is a group of its
// own, and does not count in units of stages.
void add_all_reduces(const Schedule& schedule, const CostModel& costs, Totals& totals) {
  const auto gradients = gradient_bytes(costs);
  const auto groups = gradient_groups(schedule.placement, /*tied=*/true);
  double bytes = 0;
  for (std::size_t s = 0; s < groups.size(); ++s) {
    const auto holders = static_cast<double>(groups[s].size());
    const double copies = holders * (costs.all_reduce ? static_cast<double>(costs.all_reduce->data_parallel) : 1);
    const double sent = copies > 0 ? holders * 2 * (copies - 1) / copies : 0;
    if (s < static_cast<std::size_t>(schedule.stages)) totals.all_reduce_volume += sent;
    if (s < gradients.size()) bytes += sent * gradients[s];
  }
  if (!gradients.empty()) totals.all_reduce_bytes = bytes;
}

std::string versus(double value, double first) {
  return first > 0 ? fmt::format("{:+.1f} %", (value / first - 1) * 100) : "";
}

std::string title_of(const Schedule& schedule) {
  const std::int64_t workers = workers_per_group(schedule);
  std::string title =
      fmt::format("{}, D = {}, N = {}", schedule.name, workers, schedule.micro_batches / schedule.groups);
  if (schedule.groups > 1) title += fmt::format(", W = {}", schedule.groups);
  if (schedule.slices > 1) title += fmt::format(", k = {}", schedule.slices);
  if (schedule.stages != workers) title += fmt::format(", {} stages", schedule.stages);
  const std::vector<std::size_t> lost = lost_workers(schedule);
  if (!lost.empty())
    return title + fmt::format(", without worker{} {}", lost.size() == 1 ? "" : "s", fmt::join(lost, ", "));
  if (schedule.placement.num_replicas() > 1) title += fmt::format(", {} replicas", schedule.placement.num_replicas());
  return title;
}

// The paper draws all ops with equal lengths, also backwards, which take about twice as long as forwards.
CostModel slot_costs(const Schedule& schedule, double whole_backward) {
  const StageCosts slot{.backward = whole_backward};
  return {std::vector<StageCosts>(static_cast<std::size_t>(schedule.stages), slot)};
}

}  // namespace

Totals totals_of(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation,
                 const CostModel& costs) {
  const auto held = stages_held(schedule);
  Totals totals;
  for (std::size_t w = 0; w < timeline.workers.size(); ++w) {
    const WorkerTimeline& worker = timeline.workers[w];
    const double copies = static_cast<double>(held[w]) * stage_fraction(schedule);
    totals.weight_copies = std::max(totals.weight_copies, copies * static_cast<double>(worker.peak_weight_versions));
    totals.peak_units = std::max(totals.peak_units, worker.peak_stage_units);
  }
  add_messages(schedule, explanation, costs, totals);
  add_all_reduces(schedule, costs, totals);
  if (costs.all_reduce) totals.makespan_with_all_reduce = timeline.makespan;
  return totals;
}

std::string message_volume_text(const Totals& totals) {
  return totals.message_bytes ? bytes_text(*totals.message_bytes) : fmt::format("{:g} tensors", totals.message_volume);
}

std::string all_reduce_volume_text(const Totals& totals) {
  return totals.all_reduce_bytes ? bytes_text(*totals.all_reduce_bytes)
                                 : fmt::format("{:g} stage gradients", totals.all_reduce_volume);
}

std::string comparison_table(const std::vector<Panel>& panels) {
  std::size_t width = 8;
  for (const Panel& panel : panels) width = std::max(width, panel.title.size());
  std::string text = fmt::format("{:<{}} {:>10} {:>9} {:>15} {:>12} {:>13} {:>10} {:>8} {:>14} {:>20}\n", "schedule",
                                 width, "makespan", "", "with all-reduce", "bubble ratio", "weight copies",
                                 "peak units", "messages", "message volume", "all-reduce volume");
  for (const Panel& panel : panels) {
    const Totals& totals = panel.totals;
    // Without all-reduces and updates, so that schedules with and without costs of them can be compared.
    const double makespan = panel.timeline.ops_end;
    text +=
        fmt::format("{:<{}} {:>10.6g} {:>9} {:>15} {:>12.4f} {:>13g} {:>10g} {:>8} {:>14} {:>20}\n", panel.title, width,
                    makespan, &panel == &panels.front() ? "" : versus(makespan, panels.front().timeline.ops_end),
                    totals.makespan_with_all_reduce ? fmt::format("{:.6g}", *totals.makespan_with_all_reduce) : "-",
                    panel.timeline.bubble_ratio, totals.weight_copies, totals.peak_units, totals.messages,
                    message_volume_text(totals), all_reduce_volume_text(totals));
  }
  return text;
}

Panel panel_of(Schedule schedule, Timeline timeline, const CostModel& costs) {
  Explanation explanation = explain(schedule, costs, timeline);
  const Totals totals = totals_of(schedule, timeline, explanation, costs);
  std::string title = title_of(schedule);
  return {.title = std::move(title),
          .schedule = std::move(schedule),
          .timeline = std::move(timeline),
          .explanation = std::move(explanation),
          .totals = totals,
          .memory_in_bytes = !costs.memory.empty()};
}

std::string direction(const Schedule& schedule, std::size_t replica) {
  const std::vector<WorkerId>& workers = schedule.placement.worker_of[replica];
  const auto count = static_cast<std::int64_t>(schedule.workers.size());
  // Whether each of the first D stages is `step` workers further than the stage before, around the end of the workers.
  const auto steps = [&](std::int64_t step) {
    if (count < 2 || workers.size() % schedule.workers.size() != 0) return false;
    for (std::size_t s = 1; s < schedule.workers.size(); ++s)
      if ((workers[s - 1].value() + step + count) % count != workers[s].value()) return false;
    return true;
  };
  // Both directions are equal modulo two workers.
  if (steps(1) && (count > 2 || workers[0].value() == 0)) return "down";
  return steps(-1) ? "up" : "";
}

std::string replica_name(const Schedule& schedule, std::size_t replica) {
  const std::string way = direction(schedule, replica);
  return way.empty() ? fmt::format("replica {}", replica) : way;
}

Timeline slot_timeline(const Schedule& schedule, double whole_backward) {
  // Without latency and all-reduces: a figure shows the order only.
  const CostModel slots = slot_costs(schedule, whole_backward);
  Timeline timeline = simulate(schedule, slots);
  return schedule.late_forwards ? forwards_just_in_time(schedule, slots, std::move(timeline)) : timeline;
}

Panel paper_figure(const Schedule& schedule, double whole_backward) {
  return panel_of(schedule, slot_timeline(schedule, whole_backward), slot_costs(schedule, whole_backward));
}

}  // namespace chimera
