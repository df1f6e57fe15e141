#include "traces/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/mapped.h"
#include "passes/unroll.h"
#include "render/html.h"
#include "render/text_table.h"
#include "render/timeline_json.h"
#include "schedule/schedule_csv.h"
#include "schedule/schedule_json.h"
#include "search/instance.h"
#include "search/search.h"
#include "simulate/costs_json.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

constexpr double kWorthwhile = 0.995;  // A better schedule takes less than this part of the simulated step
constexpr double kUneven = 1.15;       // A longer stage than this, in mean stages, is reported
constexpr double kSlow = 1.1;          // A rank is slow above this ratio to the same ops on another rank
constexpr double kOutlier = 2;         // An outlier takes more than this, in medians of its kind
constexpr double kNoGradient = 0.1;    // Below this part of a weight gradient, a stage has no input gradient
constexpr double kHostBound = 0.2;     // The host is too slow if it takes more than this part of the ops
constexpr double kUnexplained = 0.05;  // A larger error of the replay, as a part of a step, is reported
constexpr std::size_t kMaxBetter = 5;  // Schedules shown within the traced memory, and as many that need more
constexpr std::int64_t kMaxOpsSearched = 20'000;

std::string seconds_text(double seconds) { return fmt::format("{:.4g}", seconds); }
std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

double peak_of(const Timeline& timeline) {
  return std::ranges::max(timeline.workers, {}, &WorkerTimeline::peak_stage_units).peak_stage_units;
}

/// Returns a timeline with the time from step to step as `period`. If steps overlap, it has a second step, which starts
/// as the ranks leave the first one.
Timeline simulate_steps(const Schedule& schedule, const CostModel& costs) {
  return costs.steps_overlap ? simulate(unroll(schedule, 2), costs, {.steps = 2}) : simulate(schedule, costs);
}

/// Returns whether stages are placed as torch's schedules place them: in a loop, or in a V.
bool runs_in_torch(const Schedule& schedule) {
  const auto workers = std::ssize(schedule.workers);
  if (schedule.placement.num_replicas() != 1) return false;
  std::vector<WorkerId> loop;
  std::vector<WorkerId> v;  // Up the workers and back down
  for (std::int64_t s = 0; s < schedule.stages; ++s) {
    loop.emplace_back(s % workers);
    v.emplace_back(std::min(s, schedule.stages - 1 - s));
  }
  const auto& placed = schedule.placement.worker_of.front();
  return placed == loop || (placed == v && schedule.stages == 2 * workers);
}

/// Returns the sums of `values` over equal parts, as if each value were evenly spread over its own part.
std::vector<double> cut_evenly(const std::vector<double>& values, std::size_t parts) {
  std::vector<double> sums(values.empty() ? 0 : parts, 0);
  const double size = static_cast<double>(values.size()) / static_cast<double>(parts);
  for (std::size_t p = 0; p < sums.size(); ++p) {
    const double begin = static_cast<double>(p) * size;
    const double end = begin + size;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<double>(i);
      sums[p] += values[i] * std::max(0.0, std::min(end, at + 1) - std::max(begin, at));
    }
  }
  return sums;
}

void find_outliers(TraceDiagnosis& diagnosis) {
  const Trace& trace = diagnosis.trace;
  auto& findings = diagnosis.findings;
  // An uneven stage makes all others wait in every round, whatever the order.
  const auto totals =
      mapped(diagnosis.costs.stages, [](const StageCosts& stage) { return stage.forward + stage.backward; });
  const auto longest = std::ranges::max_element(totals);
  if (*longest > kUneven * mean(totals)) {
    findings.push_back(fmt::format(
        "stage {} takes {:.2f} times as long as the mean stage; with the layers spread evenly, a step would "
        "take {} s",
        longest - totals.begin(), *longest / mean(totals), seconds_text(diagnosis.even_seconds)));
  }
  for (const auto& [rank, ratio] : trace.peers) {
    // Data-parallel ranks with the same stages do the same work, so a difference comes from the machines.
    if (ratio > kSlow || ratio * kSlow < 1) {
      findings.push_back(
          fmt::format("rank {} takes {:.2f} times as long for its ops as the traced rank with the same "
                      "stages",
                      rank, ratio));
    }
  }
  std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> hops;
  std::vector<double> all;
  for (const TraceStep& step : trace.steps) {
    for (std::size_t m = 0; m < step.messages.size(); ++m) {
      // How long a message was under way is only known if its receiver waited for it.
      if (!step.awaited[m]) continue;
      const Message& message = step.messages[m];
      all.push_back(message.arrived - message.sent);
      hops[{message.from.worker, message.to.worker}].push_back(all.back());
    }
  }
  for (const auto& [link, times] : hops) {
    // Short messages differ by chance, so a slow link must also be long in comparison with the ops.
    if (median(times) < std::max(kOutlier * median(all), 0.05 * mean(totals))) continue;
    findings.push_back(fmt::format("messages from rank {} to rank {} take {} s, those of all links {} s",
                                   trace.ranks[link.first], trace.ranks[link.second], seconds_text(median(times)),
                                   seconds_text(median(all))));
  }
  // Single slow ops, such as those that the system interrupts, pass their delay on to all that wait for them.
  std::size_t slow = 0;
  std::size_t count = 0;
  for (const auto& kinds : trace.times) {
    for (const auto& times : kinds) {
      const double usual = median(times);
      count += times.size();
      slow += static_cast<std::size_t>(std::ranges::count_if(times, [&](double t) { return t > kOutlier * usual; }));
    }
  }
  if (slow > 0)
    findings.push_back(fmt::format("{} of {} ops took more than twice the median of their kind", slow, count));
  double ops = 0;
  double inside = 0;
  for (const TraceStep& step : trace.steps) {
    for (const WorkerParts& parts : step.parts) {
      ops += std::accumulate(parts.ops.begin(), parts.ops.end(), 0.0);
      inside += parts.inside;
    }
  }
  // Time inside of ops without an operator or a kernel is Python and launches. No other schedule can save it.
  if (inside > kHostBound * ops)
    findings.push_back(fmt::format("in {} of the time of ops, no {} runs: the host is too slow for them",
                                   percent(inside / ops), trace.on_device ? "kernel" : "operator"));
}

void find_better(TraceDiagnosis& diagnosis, double search_seconds) {
  const Trace& trace = diagnosis.trace;
  const Schedule& ran = trace.schedule;
  const auto workers = std::ssize(ran.workers);
  const double peak = peak_of(diagnosis.simulated);
  const auto replicas = static_cast<std::int64_t>(ran.placement.num_replicas());
  // Halves of a backward are measured if the trace has them. Otherwise, trace_costs() estimates them.
  const bool measured_split = has_split_backwards(ran);
  const auto host = trace_host_seconds(trace);
  std::vector<BetterSchedule> all;
  const auto consider = [&](Schedule schedule) {
    const Timeline timeline = simulate_steps(schedule, costs_of_cut(diagnosis.costs, schedule.stages, host));
    // A predicted gain below the error of predictions is not worth a change of the trainer.
    if (timeline.period >= kWorthwhile * diagnosis.simulated.period) return;
    schedule.order.reset();  // Fields of pictures, which torch's CSV does not have
    schedule.late_forwards = false;
    BetterSchedule& better = all.emplace_back();
    better.seconds = timeline.period;
    better.peak_units = peak_of(timeline);
    better.replicas = static_cast<std::int64_t>(schedule.placement.num_replicas());
    // A second copy of the weights is memory too, which the units of activations do not count.
    better.within_memory = better.peak_units <= peak + 1e-9 && better.replicas <= replicas;
    better.runs_in_torch = runs_in_torch(schedule);
    better.splits_stages = schedule.stages > ran.stages;
    const auto is_split = [](const Op& op) { return op.kind == OpKind::BackwardInput; };
    better.splits_backward = !measured_split && std::ranges::any_of(schedule.workers.front(), is_split);
    better.schedule = std::move(schedule);
  };
  for (Schedule& schedule :
       known_schedules(workers, ran.micro_batches, std::max<std::int64_t>(2, ran.stages / workers)))
    consider(std::move(schedule));
  // The search keeps the placement that ran, so its order needs no other cut of the model, and stays within the
  // activations of the trace. With several replicas its problem is too large for these few seconds.
  if (search_seconds > 0 && num_ops(ran) <= kMaxOpsSearched && replicas == 1) {
    const SearchLayout layout{workers, ran.stages, ran.placement, micro_batches_of_replicas(ran), 1};
    const SearchProblem problem{
        layout, diagnosis.costs, true, {limit_in_flight(layout, peak, "activations of the traced schedule")}};
    SearchResult found = search(problem, {without_pairs(ran)}, {.seconds = search_seconds, .wants_front = false});
    found.schedule.name = "searched order";
    consider(std::move(found.schedule));
  }
  // Only the fastest variant of a schedule is kept.
  std::ranges::stable_sort(all, {}, [](const BetterSchedule& b) {
    return std::tuple(b.seconds, std::string_view(b.schedule.name), b.schedule.stages);
  });
  std::set<std::pair<std::string, std::int64_t>> names;
  std::erase_if(all,
                [&](const BetterSchedule& b) { return !names.emplace(b.schedule.name, b.schedule.stages).second; });
  // At most kMaxBetter within the memory, and then as many that need more.
  for (const bool within_memory : {true, false}) {
    std::size_t taken = 0;
    for (BetterSchedule& better : all) {
      if (better.within_memory != within_memory || taken++ >= kMaxBetter) continue;
      better.file = fmt::format("better-{}.{}", diagnosis.better.size() + 1, better.runs_in_torch ? "csv" : "json");
      diagnosis.better.push_back(std::move(better));
    }
  }
}

/// Returns the parts with their names in text and JSON.
std::vector<std::pair<const char*, double>> named_parts(const WorkerParts& parts) {
  return {{"forward", parts.ops[0]},         {"backward", parts.ops[1]},    {"input gradient", parts.ops[2]},
          {"weight gradient", parts.ops[3]}, {"late ops", parts.late},      {"in transit", parts.transit},
          {"messages", parts.messages},      {"sums", parts.sums},          {"gathers", parts.gathers},
          {"optimizer", parts.optimizer},    {"start and end", parts.ends}, {"host", parts.host},
          {"gaps in ops", parts.inside}};
}

/// Returns the worker's parts of a step, on average over the steps.
std::vector<std::pair<const char*, double>> mean_parts(const Trace& trace, std::size_t worker) {
  auto sum = named_parts({});
  for (const TraceStep& step : trace.steps) {
    const auto parts = named_parts(step.parts[worker]);
    for (std::size_t p = 0; p < sum.size(); ++p)
      sum[p].second += parts[p].second / static_cast<double>(trace.steps.size());
  }
  return sum;
}

/// A pair of workers, with all seconds that the first waited for the second, and its longest wait.
struct Blame {
  double seconds = 0;
  LateOp longest;
};

std::vector<Blame> blames_of(const Trace& trace) {
  std::map<std::pair<std::size_t, std::size_t>, Blame> pairs;
  for (const TraceStep& step : trace.steps) {
    for (const LateOp& late : step.late) {
      Blame& blame = pairs[{late.op.worker, late.waits_for.worker}];
      blame.seconds += late.seconds / static_cast<double>(trace.steps.size());
      if (late.seconds > blame.longest.seconds) blame.longest = late;
    }
  }
  std::vector<Blame> blames;
  for (const auto& [workers, blame] : pairs) blames.push_back(blame);
  std::ranges::stable_sort(blames, std::greater(), &Blame::seconds);
  return blames;
}

std::string op_text(const Schedule& schedule, const Place& place) {
  return to_text(schedule.workers[place.worker][place.position]);
}

std::string where_text(const Trace& trace) {
  std::vector<std::vector<std::string>> rows = {{"rank"}};
  std::vector<std::vector<std::pair<const char*, double>>> parts;
  for (std::size_t w = 0; w < trace.ranks.size(); ++w) {
    parts.push_back(mean_parts(trace, w));
    rows.push_back({std::to_string(trace.ranks[w])});
  }
  for (std::size_t p = 0; p < parts.front().size(); ++p) {
    // A column that is zero for every rank only widens the table.
    if (std::ranges::all_of(parts, [&](const auto& own) { return own[p].second <= 0; })) continue;
    rows.front().emplace_back(parts.front()[p].first);
    for (std::size_t w = 0; w < parts.size(); ++w) rows[w + 1].push_back(seconds_text(parts[w][p].second));
  }
  std::string text = fmt::format("where the time of each rank went, in seconds of a step (mean of {})\n{}",
                                 trace.steps.size(), text_table(rows, 1));
  for (const Blame& blame : blames_of(trace)) {
    const auto& [op, waits_for, seconds] = blame.longest;
    text += fmt::format("rank {} waits {} s a step for rank {}, longest in {} for {}: {} s\n", trace.ranks[op.worker],
                        seconds_text(blame.seconds), trace.ranks[waits_for.worker], op_text(trace.schedule, op),
                        op_text(trace.schedule, waits_for), seconds_text(seconds));
  }
  return text;
}

std::string costs_text(const TraceDiagnosis& diagnosis) {
  const Trace& trace = diagnosis.trace;
  std::vector<std::vector<std::string>> rows = {
      {"stage", "rank", "forward", "backward", "input gradient", "weight gradient", "spread"}};
  for (std::size_t s = 0; s < trace.times.size(); ++s) {
    const auto worker = trace.schedule.placement.worker_of.front()[s].index();
    std::vector<std::string> row = {std::to_string(s), std::to_string(trace.ranks[worker])};
    double spread = 0;
    for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
      auto times = trace.times[s][kind];
      row.push_back(times.empty() ? "" : seconds_text(diagnosis.costs.stages[s].*kStageTimes[kind]));
      // Quartiles of fewer values say little.
      if (times.size() < 4) continue;
      std::ranges::sort(times);
      spread = std::max(spread, (times[times.size() * 3 / 4] - times[times.size() / 4]) / median(times));
    }
    row.push_back(percent(spread));
    rows.push_back(std::move(row));
  }
  const CostModel& costs = diagnosis.costs;
  const double copy = costs.links ? std::ranges::max(costs.links->copies) : 0;
  const double between = std::accumulate(costs.optimizer.begin(), costs.optimizer.end(), 0.0);
  return "costs: mean seconds of an op in steps of usual time, with the host's time before it; spread: between the "
         "quartiles\n" +
         text_table(rows, 1) +
         fmt::format("a message takes {} s, and up to {} s to start at each end; {} s between steps\n",
                     seconds_text(costs.latency), seconds_text(copy),
                     seconds_text(between / static_cast<double>(trace.schedule.workers.size())));
}

std::string replay_text(const TraceDiagnosis& diagnosis) {
  const double measured = diagnosis.trace.step_seconds();
  const double difference = diagnosis.simulated.period / measured - 1;
  std::string text = fmt::format("replay: with these costs a simulated step takes {} s, {} {} than measured\n",
                                 seconds_text(diagnosis.simulated.period), percent(std::abs(difference)),
                                 difference < 0 ? "less" : "more");
  // The simulator has one time per op of a stage: these are the usual reasons.
  if (std::abs(difference) > kUnexplained) {
    text += fmt::format("  unexplained: {} s of a step, such as {}\n",
                        seconds_text(std::abs(measured - diagnosis.simulated.period)),
                        difference < 0 ? "ops of uneven time, for which other ranks wait, or ranks that shared cores"
                                       : "ops that overlap on the device");
  }
  return text;
}

std::string better_text(const TraceDiagnosis& diagnosis) {
  if (diagnosis.better.empty()) return "better: no schedule of these micro-batches is predicted to be faster\n";
  std::vector<std::vector<std::string>> rows = {{"schedule", "stages", "seconds", "gain", "in flight", "file"}};
  const auto& share = diagnosis.trace.weight_share;
  const std::string split =
      share ? fmt::format("weight gradients taken as {} of backwards, by operators", percent(*share))
            : "weight gradients assumed to be half of backwards";
  std::map<std::string, std::vector<std::string>> files;  // [note]
  for (const BetterSchedule& better : diagnosis.better) {
    const auto note = [&](bool holds, const std::string& text) {
      if (holds) files[text].push_back(better.file);
    };
    note(better.replicas > 1,
         fmt::format("{} copies of the weights, without the sums of their gradients", better.replicas));
    note(!better.within_memory, "need more memory");
    note(better.splits_stages, "stages assumed to divide evenly");
    note(better.splits_backward, split);
    note(!better.runs_in_torch, "run in chimera");
    rows.push_back({better.schedule.name, std::to_string(better.schedule.stages), seconds_text(better.seconds),
                    percent(1 - better.seconds / diagnosis.simulated.period), fmt::format("{:.4g}", better.peak_units),
                    better.file});
  }
  std::string text = fmt::format(
      "better: predicted steps of other schedules (the traced one holds {:.4g} micro-batches in flight)\n{}",
      peak_of(diagnosis.simulated), text_table(rows, 1));
  for (const auto& [note, names] : files) text += fmt::format("{}: {}\n", note, fmt::join(names, ", "));
  if (std::ranges::any_of(diagnosis.better, &BetterSchedule::runs_in_torch))
    text += "--output DIR writes the files; torch runs a CSV by _PipelineScheduleRuntime._load_csv\n";
  return text;
}

Panel measured_panel(const TraceDiagnosis& diagnosis) {
  const Trace& trace = diagnosis.trace;
  const TraceStep& step = trace.steps[trace.median_step()];
  Panel panel{.title = fmt::format("{}, as it ran, in seconds", trace.schedule.name),
              .schedule = trace.schedule,
              .timeline = step.timeline,
              .explanation = explain_measured(trace.schedule, step.timeline, step.messages),
              .totals = {}};
  panel.timeline.lower_bound = diagnosis.simulated.lower_bound;
  panel.totals = totals_of(panel.schedule, panel.timeline, panel.explanation, diagnosis.costs);
  return panel;
}

}  // namespace

CostModel costs_of_cut(const CostModel& costs, std::int64_t stages, const std::array<double, kOpKinds>& host) {
  if (stages == std::ssize(costs.stages)) return costs;
  CostModel cut = costs;
  const auto parts = static_cast<std::size_t>(stages);
  cut.stages.assign(parts, {});
  for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
    std::vector<double> values;
    for (const StageCosts& stage : costs.stages) values.push_back(std::max(0.0, stage.*kStageTimes[kind] - host[kind]));
    const auto sums = cut_evenly(values, parts);
    for (std::size_t s = 0; s < parts; ++s) cut.stages[s].*kStageTimes[kind] = sums[s] + host[kind];
  }
  if (const StageCosts& first = costs.stages[0]; first.input_gradient < kNoGradient * first.weight_gradient) {
    cut.stages[0].weight_gradient = cut.stages[0].backward;  // Also with more or fewer layers
    cut.stages[0].input_gradient = 0;
  }
  cut.optimizer = cut_evenly(costs.optimizer, parts);
  if (cut.all_reduce) cut.all_reduce->seconds = cut_evenly(costs.all_reduce->seconds, parts);
  if (cut.links) {
    cut.links->bytes.assign(parts - 1, 0);
    cut.links->copies.assign(parts - 1, mean(costs.links->copies));
  }
  return cut;
}

TraceDiagnosis diagnose_trace(Trace trace, double search_seconds) {
  TraceDiagnosis diagnosis;
  diagnosis.costs = trace_costs(trace);
  diagnosis.trace = std::move(trace);
  const Schedule& schedule = diagnosis.trace.schedule;
  diagnosis.simulated = simulate(schedule, diagnosis.costs);
  diagnosis.simulated.period = simulate_steps(schedule, diagnosis.costs).period;
  CostModel even = diagnosis.costs;
  for (const auto time : kStageTimes) {
    const double usual = mean(mapped(even.stages, time));
    for (StageCosts& stage : even.stages) stage.*time = usual;
  }
  diagnosis.even_seconds = simulate_steps(schedule, even).period;
  find_outliers(diagnosis);
  find_better(diagnosis, search_seconds);
  return diagnosis;
}

std::string to_text(const TraceDiagnosis& diagnosis) {
  const Trace& trace = diagnosis.trace;
  const auto [least, most] = std::ranges::minmax(trace.steps, {}, &TraceStep::seconds);
  std::string text = fmt::format(
      "what ran: {}{}, {} workers (ranks {}), {} stages, {} micro-batches\n{} {}: median {} s, {} to {} s\n",
      trace.schedule.name, trace.is_known ? "" : " (no generator makes it)", trace.ranks.size(),
      fmt::join(trace.ranks, ", "), trace.schedule.stages, trace.schedule.micro_batches, trace.steps.size(),
      trace.steps.size() == 1 ? "step" : "steps", seconds_text(trace.step_seconds()), seconds_text(least.seconds),
      seconds_text(most.seconds));
  for (const std::string& note : trace.notes) text += note + "\n";
  text += "\n" + where_text(trace) + "\n" + costs_text(diagnosis);
  for (const std::string& finding : diagnosis.findings) text += finding + "\n";
  return text + "\n" + replay_text(diagnosis) + "\n" + better_text(diagnosis);
}

nlohmann::ordered_json to_json(const TraceDiagnosis& diagnosis) {
  const Trace& trace = diagnosis.trace;
  const double measured = trace.step_seconds();
  nlohmann::ordered_json json = {{"name", trace.schedule.name},
                                 {"known", trace.is_known},
                                 {"workers", trace.ranks.size()},
                                 {"stages", trace.schedule.stages},
                                 {"micro_batches", trace.schedule.micro_batches},
                                 {"ranks", trace.ranks},
                                 {"step_seconds", measured},
                                 {"steps", mapped(trace.steps, &TraceStep::seconds)},
                                 {"notes", trace.notes},
                                 {"parts", nlohmann::ordered_json::array()},
                                 {"waits", nlohmann::ordered_json::array()}};
  for (std::size_t w = 0; w < trace.ranks.size(); ++w) {
    nlohmann::ordered_json& parts = json["parts"].emplace_back(nlohmann::ordered_json{{"rank", trace.ranks[w]}});
    for (const auto& [name, seconds] : mean_parts(trace, w)) parts[json_key(name)] = seconds;
  }
  for (const Blame& blame : blames_of(trace)) {
    json["waits"].push_back({{"rank", trace.ranks[blame.longest.op.worker]},
                             {"for_rank", trace.ranks[blame.longest.waits_for.worker]},
                             {"seconds", blame.seconds},
                             {"op", op_text(trace.schedule, blame.longest.op)},
                             {"waits_for", op_text(trace.schedule, blame.longest.waits_for)}});
  }
  json["findings"] = diagnosis.findings;
  json["simulated_seconds"] = diagnosis.simulated.period;
  json["difference"] = diagnosis.simulated.period / measured - 1;
  json["even_seconds"] = diagnosis.even_seconds;
  json["peak_in_flight"] = peak_of(diagnosis.simulated);
  json["better"] = nlohmann::ordered_json::array();
  for (const BetterSchedule& better : diagnosis.better) {
    json["better"].push_back({{"name", better.schedule.name},
                              {"stages", better.schedule.stages},
                              {"seconds", better.seconds},
                              {"peak_in_flight", better.peak_units},
                              {"replicas", better.replicas},
                              {"within_memory", better.within_memory},
                              {"runs_in_torch", better.runs_in_torch},
                              {"assumes_even_stages", better.splits_stages},
                              {"assumes_weight_share", better.splits_backward},
                              {"file", better.file},
                              {"schedule", to_json(better.schedule)}});
  }
  json["schedule"] = to_json(trace.schedule);
  json["costs"] = read_ordered_json(costs_to_json(diagnosis.costs));
  const Panel panel = measured_panel(diagnosis);
  json["timeline"] = read_ordered_json(to_json(panel.schedule, panel.timeline, panel.explanation));
  return json;
}

std::vector<Panel> panels_of(const TraceDiagnosis& diagnosis) {
  // Both panels have one time axis, so that a difference between them can be seen.
  Panel simulated = panel_of(diagnosis.trace.schedule, diagnosis.simulated, diagnosis.costs);
  simulated.title = fmt::format("{}, simulated with the measured costs", diagnosis.trace.schedule.name);
  return {measured_panel(diagnosis), std::move(simulated)};
}

void write_diagnosis(const TraceDiagnosis& diagnosis, const std::string& folder) {
  const auto path = [&](const std::string& name) { return (std::filesystem::path(folder) / name).string(); };
  // The printed lines and docs/why_slow.md name these files.
  write_whole(path("costs.json"), costs_to_json(diagnosis.costs) + "\n");
  write_whole(path("ran.csv"), to_csv(diagnosis.trace.schedule));
  for (const BetterSchedule& better : diagnosis.better)
    write_whole(path(better.file), better.runs_in_torch ? to_csv(better.schedule) : to_json(better.schedule));
  write_whole(path("timeline.html"), to_html(panels_of(diagnosis)));
}

}  // namespace chimera
