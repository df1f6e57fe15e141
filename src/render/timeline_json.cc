// Written by hand in the form of schedule files (schedule_json.cc): each list of a worker is one line, so that people
// can read and compare the text.

#include "render/timeline_json.h"

#include <fmt/ranges.h>

#include <span>
#include <vector>

#include "core/json.h"
#include "core/mapped.h"

namespace chimera {
namespace {

template <class Values, class ToText>
std::string list(const Values& values, const ToText& to_text) {
  return fmt::format("[{}]", fmt::join(mapped(values, to_text), ", "));
}

std::string op_json(const Op& op, const TimedOp& time, bool sliced) {
  return fmt::format(R"({{"op": "{}", "stage": {}, "replica": {}, "micro_batch": {}{}{}, "start": {}, "end": {}}})",
                     letter(op.kind), op.stage.value(), op.replica.value(), op.micro_batch.value(),
                     sliced ? fmt::format(", \"slice\": {}", op.slice) : "", op.paired ? ", \"paired\": true" : "",
                     json_number(time.start), json_number(time.end));
}

std::string place_json(const Place& place) {
  return fmt::format("{{\"worker\": {}, \"position\": {}}}", place.worker, place.position);
}

std::string cause_name(IdleCause cause) { return json_key(to_text(cause)); }

std::string causes_json(std::span<const std::vector<Bubble>> workers) {
  const auto idle = idle_by_cause(workers);
  std::string out = "{";
  for (int c = 0; c < kIdleCauses; ++c)
    out += fmt::format("{}\"{}\": {}", c == 0 ? "" : ", ", cause_name(static_cast<IdleCause>(c)),
                       json_number(idle[static_cast<std::size_t>(c)]));
  return out + "}";
}

std::string bubble_json(const Bubble& bubble) {
  return fmt::format("{{\"cause\": \"{}\", \"start\": {}, \"end\": {}{}}}", cause_name(bubble.cause),
                     json_number(bubble.start), json_number(bubble.end),
                     bubble.waits_for ? ", \"waits_for\": " + place_json(*bubble.waits_for) : "");
}

std::string all_reduce_json(const TimedAllReduce& sum) {
  return fmt::format("{{\"stage\": {}, \"start\": {}, \"end\": {}}}", sum.group.value(), json_number(sum.start),
                     json_number(sum.end));
}

std::string memory_json(const std::vector<MemoryPoint>& points) {
  return list(points,
              [](const MemoryPoint& p) { return fmt::format("[{}, {}]", json_number(p.time), json_number(p.amount)); });
}

std::string worker_json(const Schedule& schedule, const WorkerTimeline& worker, std::size_t w,
                        const Explanation& explanation) {
  // Only sliced schedules have the field, as in schedule files.
  const bool sliced = schedule.slices > 1;
  std::string out = worker.lost ? "{\"lost\": true, " : "{";
  out += fmt::format(
      "\"busy\": {}, \"idle\": {}, \"peak_in_flight\": {}, \"peak_weight_versions\": {}, \"inner_idle\": {}, "
      "\"peak_stage_units\": {},\n   \"idle_by_cause\": {},\n",
      json_number(worker.busy), json_number(worker.idle), micro_batches_in_flight(schedule, worker),
      worker.peak_weight_versions, json_number(worker.inner_idle), json_number(worker.peak_stage_units),
      causes_json({&explanation.bubbles[w], 1}));
  out += "   \"ops\": [";
  for (std::size_t i = 0; i < worker.ops.size(); ++i)
    out += (i == 0 ? "" : ", ") + op_json(schedule.workers[w][i], worker.ops[i], sliced);
  out += "],\n   \"bubbles\": " + list(explanation.bubbles[w], bubble_json);
  out += ",\n   \"all_reduces\": " + list(explanation.all_reduces[w], all_reduce_json);
  return out + ",\n   \"memory\": " + memory_json(explanation.memory[w]) + "}";
}

}  // namespace

std::string to_json(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation,
                    const std::string& more) {
  std::string out = fmt::format(
      "{{\"makespan\": {}, \"bubble_ratio\": {}, \"lower_bound\": {}{},\n \"inner_bubble\": {}, \"makespan_bubble\": "
      "{}, "
      "\"ops_end\": {},\n \"step_ends\": {}, \"period\": {},\n",
      json_number(timeline.makespan), json_number(timeline.bubble_ratio), json_number(timeline.lower_bound), more,
      json_number(timeline.inner_bubble), json_number(timeline.makespan_bubble), json_number(timeline.ops_end),
      list(timeline.step_ends, json_number), json_number(timeline.period));
  out += fmt::format(" \"idle_by_cause\": {},\n \"critical_path\": {},\n \"workers\": [",
                     causes_json(explanation.bubbles), list(explanation.critical_path, place_json));
  for (std::size_t w = 0; w < timeline.workers.size(); ++w)
    out += (w == 0 ? "\n  " : ",\n  ") + worker_json(schedule, timeline.workers[w], w, explanation);
  return out + "]}\n";
}

}  // namespace chimera
