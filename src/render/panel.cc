#include "render/panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace chimera {
namespace {

/// Most (replica, stage) that one worker holds.
std::int64_t most_stages_held(const Schedule& schedule) {
  std::vector<std::int64_t> held(schedule.workers.size());
  for (const auto& replica : schedule.placement.worker_of) {
    for (const WorkerId worker : replica) ++held[worker.index()];
  }
  return held.empty() ? 0 : *std::max_element(held.begin(), held.end());
}

std::string versus(double value, double first) {
  return first > 0 ? fmt::format("{:+.1f} %", (value / first - 1) * 100) : "";
}

}  // namespace

Totals totals_of(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation) {
  const double stage_share =
      static_cast<double>(schedule.workers.size()) / static_cast<double>(std::max<std::int64_t>(schedule.stages, 1));
  const double versions = schedule.updates ? static_cast<double>(schedule.updates->versions) : 1;
  Totals totals;
  totals.weight_copies = static_cast<double>(most_stages_held(schedule)) * stage_share * versions;
  for (const WorkerTimeline& worker : timeline.workers) {
    totals.peak_units = std::max(totals.peak_units,
                                 static_cast<double>(worker.peak_in_flight) * stage_share * schedule.micro_batch_scale);
  }
  totals.messages = static_cast<std::int64_t>(explanation.messages.size());
  totals.message_volume = static_cast<double>(totals.messages) * schedule.micro_batch_scale;
  for (const auto& group : stage_groups(schedule.placement)) {
    totals.all_reduce_volume += 2 * (static_cast<double>(group.size()) - 1);
  }
  return totals;
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; std::abs(bytes) >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

std::string message_volume_text(const Totals& totals) {
  return totals.volumes_in_bytes ? bytes_text(totals.message_volume)
                                 : fmt::format("{:g} tensors", totals.message_volume);
}

std::string all_reduce_volume_text(const Totals& totals) {
  return totals.volumes_in_bytes ? bytes_text(totals.all_reduce_volume)
                                 : fmt::format("{:g} stage gradients", totals.all_reduce_volume);
}

std::string comparison(const std::vector<Panel>& panels) {
  std::size_t width = 8;
  for (const Panel& panel : panels) width = std::max(width, panel.title.size());
  std::string text = fmt::format("{:<{}} {:>10} {:>9} {:>15} {:>12} {:>13} {:>10} {:>8} {:>14} {:>20}\n", "schedule",
                                 width, "makespan", "", "with all-reduce", "bubble ratio", "weight copies",
                                 "peak units", "messages", "their volume", "all-reduce volume");
  for (const Panel& panel : panels) {
    const Totals& totals = panel.totals;
    const double makespan = panel.timeline.makespan;
    text +=
        fmt::format("{:<{}} {:>10.6g} {:>9} {:>15} {:>12.4f} {:>13g} {:>10g} {:>8} {:>14} {:>20}\n", panel.title, width,
                    makespan, &panel == &panels.front() ? "" : versus(makespan, panels.front().timeline.makespan),
                    totals.makespan_with_all_reduce ? fmt::format("{:.6g}", *totals.makespan_with_all_reduce) : "-",
                    panel.timeline.bubble_ratio, totals.weight_copies, totals.peak_units, totals.messages,
                    message_volume_text(totals), all_reduce_volume_text(totals));
  }
  return text;
}

}  // namespace chimera
