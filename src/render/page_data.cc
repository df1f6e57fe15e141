// A panel becomes columns: one typed array for the kind of all ops, one for their stages, and so on, so that a page of
// a million ops has no object for each. The entries of all workers stand one behind another. The names of the fields
// are those that render/page/data.js reads.

#include "render/page_data.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "render/colors.h"
#include "render/encoding.h"
#include "render/slots.h"
#include "schedule/survivors.h"

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

// Lists of all workers are one flat array for the page; worker w has the entries first[w] to first[w + 1] - 1.
/// The total comes last.
template <class T>
std::vector<std::uint32_t> firsts(const std::vector<std::vector<T>>& workers, std::size_t num_workers) {
  std::vector<std::uint32_t> first = {0};
  for (std::size_t w = 0; w < num_workers; ++w) {
    first.push_back(first.back() + static_cast<std::uint32_t>(w < workers.size() ? workers[w].size() : 0));
  }
  return first;
}

template <class Number, class T, class F>
Json numbers_of(const std::vector<std::vector<T>>& workers, F number) {
  std::vector<Number> values;
  for (const auto& entries : workers) {
    for (const T& entry : entries) values.push_back(static_cast<Number>(number(entry)));
  }
  return column(values);
}

Json integers(const auto& workers, auto number) { return numbers_of<std::uint32_t>(workers, number); }

Json times(const auto& workers, auto number) { return numbers_of<float>(workers, number); }

/// Numbers ops as the page does: consecutively, in order of workers.
class OpNumbers {
 public:
  explicit OpNumbers(const Schedule& schedule) : first_(firsts(schedule.workers, schedule.workers.size())) {}
  [[nodiscard]] const std::vector<std::uint32_t>& first() const { return first_; }
  [[nodiscard]] std::uint32_t of(const Place& place) const {
    return first_[place.worker] + static_cast<std::uint32_t>(place.position);
  }

 private:
  std::vector<std::uint32_t> first_;
};

Json ops_json(const Schedule& schedule, const Timeline& timeline, const OpNumbers& numbers) {
  // The times of ops are in the timeline, everything else about them is in the schedule; both have the same order.
  std::vector<std::vector<TimedOp>> timed;
  for (const WorkerTimeline& worker : timeline.workers) timed.push_back(worker.ops);
  Json ops = {{"first", column(numbers.first())},
              {"kind", integers(schedule.workers, [](const Op& op) { return op.kind; })},
              {"stage", integers(schedule.workers, [](const Op& op) { return op.stage.value(); })},
              {"replica", integers(schedule.workers, [](const Op& op) { return op.replica.value(); })},
              {"microBatch", integers(schedule.workers, [](const Op& op) { return op.micro_batch.value(); })},
              {"start", times(timed, [](const TimedOp& op) { return op.start; })},
              {"end", times(timed, [](const TimedOp& op) { return op.end; })}};
  if (schedule.slices > 1) ops["slice"] = integers(schedule.workers, [](const Op& op) { return op.slice; });
  if (has_pairs(schedule)) ops["paired"] = integers(schedule.workers, [](const Op& op) { return op.paired ? 1 : 0; });
  if (schedule.updates) {
    ops["version"] = integers(schedule.workers, [](const Op& op) { return op.weight_version; });
  }
  return ops;
}

Json bubbles_json(const Panel& panel, const OpNumbers& numbers) {
  // The value of kNone in render/page/data.js.
  constexpr std::uint32_t kNone = 0xFFFFFFFF;
  const auto& bubbles = panel.explanation.bubbles;
  return {{"first", column(firsts(bubbles, panel.schedule.workers.size()))},
          {"start", times(bubbles, [](const Bubble& bubble) { return bubble.start; })},
          {"end", times(bubbles, [](const Bubble& bubble) { return bubble.end; })},
          {"cause", integers(bubbles, [](const Bubble& bubble) { return bubble.cause; })},
          {"waitsFor", integers(bubbles, [&](const Bubble& bubble) {
             return bubble.waits_for ? numbers.of(*bubble.waits_for) : kNone;
           })}};
}

Json messages_json(const std::vector<Message>& messages, const OpNumbers& numbers) {
  // Messages belong to two workers each, so they are a single list.
  const std::vector<std::vector<Message>> all = {messages};
  return {{"from", integers(all, [&](const Message& message) { return numbers.of(message.from); })},
          {"to", integers(all, [&](const Message& message) { return numbers.of(message.to); })},
          {"sent", times(all, [](const Message& message) { return message.sent; })},
          {"arrived", times(all, [](const Message& message) { return message.arrived; })}};
}

Json all_reduces_json(const Panel& panel) {
  const auto& sums = panel.explanation.all_reduces;
  return {{"first", column(firsts(sums, panel.schedule.workers.size()))},
          {"stage", integers(sums, [](const TimedAllReduce& sum) { return sum.group.value(); })},
          {"start", times(sums, [](const TimedAllReduce& sum) { return sum.start; })},
          {"end", times(sums, [](const TimedAllReduce& sum) { return sum.end; })}};
}

// Updates that take no time would be boxes without width.
Json updates_json(const Panel& panel) {
  std::vector<std::vector<TimedUpdate>> updates;
  for (const WorkerTimeline& worker : panel.timeline.workers) {
    std::copy_if(worker.updates.begin(), worker.updates.end(), std::back_inserter(updates.emplace_back()),
                 [](const TimedUpdate& update) { return update.end > update.start; });
  }
  return {{"first", column(firsts(updates, panel.schedule.workers.size()))},
          {"start", times(updates, [](const TimedUpdate& update) { return update.start; })},
          {"end", times(updates, [](const TimedUpdate& update) { return update.end; })}};
}

Json memory_json(const Panel& panel) {
  const auto& memory = panel.explanation.memory;
  return {{"first", column(firsts(memory, panel.schedule.workers.size()))},
          {"time", times(memory, [](const MemoryPoint& point) { return point.time; })},
          {"amount", times(memory, [](const MemoryPoint& point) { return point.amount; })}};
}

Json totals_json(const Totals& totals) {
  Json json = {{"weightCopies", totals.weight_copies},
               {"peakUnits", totals.peak_units},
               {"messages", totals.messages},
               {"messageVolume", message_volume_text(totals)},
               {"allReduceVolume", all_reduce_volume_text(totals)},
               {"withAllReduce", nullptr}};
  if (totals.makespan_with_all_reduce) json["withAllReduce"] = *totals.makespan_with_all_reduce;
  return json;
}

void add_replicas(const Schedule& schedule, Json& json) {
  const std::size_t count = schedule.placement.num_replicas();
  json["replicas"] = Json::array();
  json["fills"] = Json::array();
  for (std::size_t r = 0; r < count; ++r) {
    const ReplicaId replica(static_cast<std::int64_t>(r));
    json["replicas"].push_back({{"name", direction(schedule, r)}, {"hatched", is_hatched(replica, count)}});
  }
  const std::size_t shades = num_shades(schedule.slices);
  for (int kind = 0; kind < kOpKinds; ++kind) {
    Json fills = Json::array();  // [replica * shades + shade]
    for (std::size_t i = 0; i < count * shades; ++i) {
      const ReplicaId replica(static_cast<std::int64_t>(i / shades));
      fills.push_back(to_hex(color_of(static_cast<OpKind>(kind), replica, count, i % shades, shades)));
    }
    json["fills"].push_back(std::move(fills));
  }
  if (schedule.slices > 1) json["slices"] = schedule.slices;
}

Json causes_json() {
  Json causes = Json::array();
  for (int cause = 0; cause < kIdleCauses; ++cause) {
    const auto named = static_cast<IdleCause>(cause);
    const CauseStyle& style = style_of(named);
    causes.push_back(
        {{"name", to_text(named)}, {"light", to_hex(style.light)}, {"dark", to_hex(style.dark)}, {"tile", style.tile}});
  }
  return causes;
}

}  // namespace

Json page_panel(const Panel& panel) {
  const OpNumbers numbers(panel.schedule);
  std::vector<std::uint32_t> critical;
  for (const Place& place : panel.explanation.critical_path) critical.push_back(numbers.of(place));
  Json json = {{"title", panel.title},
               {"workers", panel.schedule.workers.size()},
               {"lost", lost_workers(panel.schedule)},
               {"makespan", panel.timeline.makespan},
               {"opsEnd", panel.timeline.ops_end},
               {"bubbleRatio", panel.timeline.bubble_ratio},
               {"lowerBound", panel.timeline.lower_bound},
               {"inBytes", panel.memory_in_bytes},
               {"totals", totals_json(panel.totals)},
               {"ops", ops_json(panel.schedule, panel.timeline, numbers)},
               {"bubbles", bubbles_json(panel, numbers)},
               {"messages", messages_json(panel.explanation.messages, numbers)},
               {"allReduces", all_reduces_json(panel)},
               {"updates", updates_json(panel)},
               {"memory", memory_json(panel)},
               {"criticalPath", column(critical)}};
  add_replicas(panel.schedule, json);
  return json;
}

Json page_colors() {
  return {{"causes", causes_json()},
          {"replicaTile", kReplicaTile},
          {"allReduceColor", to_hex(kAllReduceColor)},
          {"updateColor", to_hex(kUpdateColor)}};
}

}  // namespace chimera
