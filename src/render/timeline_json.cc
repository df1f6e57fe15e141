#include "render/timeline_json.h"

#include <fmt/format.h>

#include <cmath>

namespace chimera {
namespace {

/// Shortest text that reads back to the same number; whole numbers keep a fraction, as JSON readers of floats expect.
std::string number(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.1f}", value) : fmt::format("{}", value);
}

std::string op_json(const Op& op, const TimedOp& time) {
  return fmt::format(R"({{"op": "{}", "stage": {}, "replica": {}, "micro_batch": {}, "start": {}, "end": {}}})",
                     letter(op.kind), op.stage.value(), op.replica.value(), op.micro_batch.value(), number(time.start),
                     number(time.end));
}

}  // namespace

std::string to_json(const Schedule& schedule, const Timeline& timeline) {
  std::string out = fmt::format("{{\"makespan\": {}, \"bubble_ratio\": {}, \"lower_bound\": {},\n \"workers\": [",
                                number(timeline.makespan), number(timeline.bubble_ratio), number(timeline.lower_bound));
  for (std::size_t w = 0; w < timeline.workers.size(); ++w) {
    const WorkerTimeline& worker = timeline.workers[w];
    out += fmt::format(
        "{}\n  {{\"busy\": {}, \"idle\": {}, \"peak_in_flight\": {}, \"peak_weight_versions\": 1,\n   \"ops\": [",
        w == 0 ? "" : ",", number(worker.busy), number(worker.idle), worker.peak_in_flight);
    for (std::size_t i = 0; i < worker.ops.size(); ++i) {
      out += (i == 0 ? "" : ", ") + op_json(schedule.workers[w][i], worker.ops[i]);
    }
    out += "]}";
  }
  return out + "]}\n";
}

}  // namespace chimera
