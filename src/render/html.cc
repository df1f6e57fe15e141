// A panel becomes columns: one typed array for the kind of all ops, one for their stages, and so on, so that a page of
// a million ops has no object for each. The entries of all workers stand one behind another. The names of the fields
// are those that render/page/data.js reads.

#include "render/html.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "render/colors.h"
#include "render/encoding.h"
#include "render/page/page.h"

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

// Lists of all workers are one flat array for the page; worker w has the entries first[w] to first[w + 1] - 1.
/// The total comes last.
template <class T>
std::vector<std::uint32_t> firsts(const std::vector<std::vector<T>>& workers, std::size_t num_workers) {
  std::vector<std::uint32_t> first = {0};
  for (std::size_t w = 0; w < num_workers; ++w)
    first.push_back(first.back() + static_cast<std::uint32_t>(w < workers.size() ? workers[w].size() : 0));
  return first;
}

template <class Number, class T, class F>
Json numbers_of(const std::vector<std::vector<T>>& workers, F number) {
  std::vector<Number> values;
  for (const auto& entries : workers)
    for (const T& entry : entries) values.push_back(static_cast<Number>(number(entry)));
  return column(values);
}

Json integers(const auto& workers, auto number) { return numbers_of<std::uint32_t>(workers, number); }

Json times(const auto& workers, auto number) { return numbers_of<float>(workers, number); }

/// Returns the columns of entries that have a start and an end.
template <class T>
Json spans_json(const std::vector<std::vector<T>>& workers, std::size_t num_workers) {
  return {{"first", column(firsts(workers, num_workers))},
          {"start", times(workers, [](const T& entry) { return entry.start; })},
          {"end", times(workers, [](const T& entry) { return entry.end; })}};
}

/// Returns the number of an op on the page: consecutive, in order of workers.
std::uint32_t number_of(const std::vector<std::uint32_t>& first, const Place& place) {
  return first[place.worker] + static_cast<std::uint32_t>(place.position);
}

Json ops_json(const Schedule& schedule, const Timeline& timeline, const std::vector<std::uint32_t>& first) {
  // The times of ops are in the timeline, everything else about them is in the schedule; both have the same order.
  const auto timed = mapped(timeline.workers, &WorkerTimeline::ops);
  Json ops = {{"first", column(first)},
              {"kind", integers(schedule.workers, [](const Op& op) { return op.kind; })},
              {"stage", integers(schedule.workers, [](const Op& op) { return op.stage.value(); })},
              {"replica", integers(schedule.workers, [](const Op& op) { return op.replica.value(); })},
              {"microBatch", integers(schedule.workers, [](const Op& op) { return op.micro_batch.value(); })},
              {"start", times(timed, [](const TimedOp& op) { return op.start; })},
              {"end", times(timed, [](const TimedOp& op) { return op.end; })}};
  if (schedule.slices > 1) ops["slice"] = integers(schedule.workers, [](const Op& op) { return op.slice; });
  if (has_pairs(schedule)) ops["paired"] = integers(schedule.workers, [](const Op& op) { return op.paired ? 1 : 0; });
  if (schedule.updates) ops["version"] = integers(schedule.workers, [](const Op& op) { return op.weight_version; });
  return ops;
}

Json bubbles_json(const Panel& panel, const std::vector<std::uint32_t>& first) {
  // The value of kNone in render/page/data.js.
  constexpr std::uint32_t kNone = 0xFFFFFFFF;
  const auto& bubbles = panel.explanation.bubbles;
  Json json = spans_json(bubbles, panel.schedule.workers.size());
  json["cause"] = integers(bubbles, [](const Bubble& bubble) { return bubble.cause; });
  json["waitsFor"] = integers(
      bubbles, [&](const Bubble& bubble) { return bubble.waits_for ? number_of(first, *bubble.waits_for) : kNone; });
  return json;
}

Json messages_json(const std::vector<Message>& messages, const std::vector<std::uint32_t>& first) {
  // Messages belong to two workers each, so they are a single list.
  const std::vector<std::vector<Message>> all = {messages};
  return {{"from", integers(all, [&](const Message& message) { return number_of(first, message.from); })},
          {"to", integers(all, [&](const Message& message) { return number_of(first, message.to); })},
          {"sent", times(all, [](const Message& message) { return message.sent; })},
          {"arrived", times(all, [](const Message& message) { return message.arrived; })}};
}

Json all_reduces_json(const Panel& panel) {
  const auto& sums = panel.explanation.all_reduces;
  Json json = spans_json(sums, panel.schedule.workers.size());
  json["stage"] = integers(sums, [](const TimedAllReduce& sum) { return sum.group.value(); });
  return json;
}

// Updates that take no time would be boxes without width.
Json updates_json(const Panel& panel) {
  std::vector<std::vector<TimedUpdate>> updates;
  for (const WorkerTimeline& worker : panel.timeline.workers)
    std::copy_if(worker.updates.begin(), worker.updates.end(), std::back_inserter(updates.emplace_back()),
                 [](const TimedUpdate& update) { return update.end > update.start; });
  return spans_json(updates, panel.schedule.workers.size());
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

/// Escapes `<`, as `</script>` or `<!--` would end or change a script element.
std::string embed(const Json& json) {
  std::string text;
  for (const char c : json_text(json)) text += c == '<' ? "\\u003c" : std::string(1, c);
  return text;
}

std::string page_title(const std::vector<Panel>& panels) {
  // A page of several panels is called by all of them.
  return escape_markup(fmt::format("{}", fmt::join(mapped(panels, &Panel::title), ", ")));
}

// Titles are text of users: a field name in a title must stay as it is.
/// Fills the fields of a template, which stand in it once and in this order, so that inserted text is not expanded.
std::string fill_template(std::string_view text, const std::vector<std::pair<std::string_view, std::string>>& fields) {
  std::string result;
  for (const auto& [name, value] : fields) {
    const std::size_t at = text.find(name);
    result.append(text.substr(0, at)).append(value);
    text.remove_prefix(at + name.size());
  }
  return result.append(text);
}

}  // namespace

Json page_panel(const Panel& panel) {
  const std::vector<std::uint32_t> first = firsts(panel.schedule.workers, panel.schedule.workers.size());
  const auto critical =
      mapped(panel.explanation.critical_path, [&](const Place& place) { return number_of(first, place); });
  Json json = {{"title", panel.title},
               {"workers", panel.schedule.workers.size()},
               {"lost", lost_workers(panel.schedule)},
               {"makespan", panel.timeline.makespan},
               {"opsEnd", panel.timeline.ops_end},
               {"bubbleRatio", panel.timeline.bubble_ratio},
               {"lowerBound", panel.timeline.lower_bound},
               {"inBytes", panel.memory_in_bytes},
               {"totals", totals_json(panel.totals)},
               {"ops", ops_json(panel.schedule, panel.timeline, first)},
               {"bubbles", bubbles_json(panel, first)},
               {"messages", messages_json(panel.explanation.messages, first)},
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

std::string to_html(const std::vector<Panel>& panels) {
  if (panels.empty()) throw ConfigError("HTML page: no schedule is given");
  // The limit is for all panels of the page together.
  const auto ops = std::accumulate(panels.begin(), panels.end(), std::int64_t{0},
                                   [](std::int64_t sum, const Panel& panel) { return sum + num_ops(panel.schedule); });
  if (ops > kMaxPageOps)
    reject(
        "HTML page: {} ops are more than the {} that a page holds; use fewer stages or micro-batches, or another "
        "format",
        ops, kMaxPageOps);
  for (const Panel& panel : panels) {
    // The page has times as 32-bit floats.
    if (panel.timeline.makespan <= static_cast<double>(std::numeric_limits<float>::max())) continue;
    throw ConfigError("HTML page: the makespan is too large for a page; use a larger unit of time");
  }
  Json data = page_colors();
  data["panels"] = Json::array();
  for (const Panel& panel : panels) data["panels"].push_back(page_panel(panel));
  return fill_template(page::kTemplate, {{"@title@", page_title(panels)},
                                         {"@style@", std::string(page::kStyle)},
                                         {"@data@", embed(data)},
                                         {"@script@", std::string(page::kScript)}});
}

}  // namespace chimera
