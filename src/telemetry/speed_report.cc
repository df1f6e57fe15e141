#include "telemetry/speed_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/counted.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"
#include "telemetry/run_history.h"

namespace chimera {
namespace {

/// Complete steps in the record of one rank.
struct RankSteps {
  std::vector<double> step_seconds;
  SpeedParts total;
  OpTotals ops;
};

/// Adds the time of an instruction to the part that it belongs to.
void add(const Instruction& instruction, double seconds, RankSteps& steps) {
  switch (instruction.kind) {
    case InstructionKind::Compute: {
      OpTotal& op = steps.ops[{instruction.op.stage.value(), instruction.op.kind}];
      op.seconds += seconds;
      ++op.count;
      steps.total.ops += seconds;
      return;
    }
    case InstructionKind::Recompute: steps.total.ops += seconds; return;
    case InstructionKind::WaitReceive:
    case InstructionKind::WaitSend: steps.total.messages += seconds; return;
    case InstructionKind::WaitAllReduce: steps.total.sums += seconds; return;
    case InstructionKind::ReduceScalars: steps.total.ranks += seconds; return;
    case InstructionKind::OptimizerStep:
    case InstructionKind::UpdateWeights: steps.total.updates += seconds; return;
    default: steps.total.rest += seconds; return;
  }
}

/// An event marks the start of an instruction, so an instruction lasts until the next event. The oldest step may have
/// lost its first events to newer ones, and the newest is not over, so neither counts. The first step of a run is slow,
/// because memory and caches are used for the first time.
RankSteps steps_of(const std::vector<FlightEvent>& events) {
  RankSteps steps;
  const auto step_at = [&](std::size_t i) {
    return events[i].progress.phase == RankProgress::Phase::Steps ? events[i].progress.step : 0;
  };
  const auto seconds_between = [&](std::size_t i, std::size_t end) {
    return static_cast<double>(events[end].nanoseconds - events[i].nanoseconds) / 1e9;
  };
  std::vector<std::size_t> begins;  // First event of each step, and of each time between two steps
  for (std::size_t i = 0; i < events.size(); ++i)
    if (i == 0 || step_at(i) != step_at(i - 1)) begins.push_back(i);
  for (std::size_t part = 1; part + 1 < begins.size(); ++part) {
    const std::size_t begin = begins[part];
    const std::size_t end = begins[part + 1];
    if (step_at(begin) <= 1) continue;
    for (std::size_t i = begin; i < end; ++i) add(events[i].progress.instruction, seconds_between(i, i + 1), steps);
    steps.step_seconds.push_back(seconds_between(begin, end));
  }
  return steps;
}

constexpr std::array kParts = {
    std::pair("ops", &SpeedParts::ops),         std::pair("messages", &SpeedParts::messages),
    std::pair("sums", &SpeedParts::sums),       std::pair("slowest rank", &SpeedParts::ranks),
    std::pair("updates", &SpeedParts::updates), std::pair("rest", &SpeedParts::rest)};

const RankSpeed* straggler_of(const SpeedAnalysis& report) {
  const auto slowest = std::ranges::max_element(report.ranks, {}, &RankSpeed::slowdown);
  return slowest != report.ranks.end() && slowest->is_straggler() ? &*slowest : nullptr;
}

bool others_are_busy(const SpeedAnalysis& report) {
  constexpr double kLargeShare = 0.2;
  return report.others_share.value_or(0) > kLargeShare;
}

bool has_cpu_times(const SpeedAnalysis& report) {
  return !report.ops.empty() && std::ranges::all_of(report.ops, [](const OpSpeed& op) { return op.cpu_seconds > 0; });
}

/// Returns how many times as long ops took because they waited for a core. Without CPU times, it is the most that other
/// processes can cause: the ranks get the rest of the cores.
double waits_for_cores(const SpeedAnalysis& report) {
  if (!has_cpu_times(report)) return 1 / (1 - std::min(report.others_share.value_or(0), 0.99));
  double seconds = 0;
  double cpu_seconds = 0;
  for (const OpSpeed& op : report.ops) {
    seconds += op.seconds;
    cpu_seconds += op.cpu_seconds;
  }
  return std::max(seconds / cpu_seconds, 1.0);
}

/// Returns a sentence on ops that take longer than planned, apart from the factor `waits`; empty if none do.
std::string slow_ops(const SpeedAnalysis& report, double waits) {
  const auto excess = [&](const OpSpeed& op) {
    const double seconds = has_cpu_times(report) ? op.cpu_seconds : op.seconds / waits;
    return op.planned > 0 ? seconds / op.planned : 0;
  };
  const std::string apart = others_are_busy(report) ? "apart from that, " : "";
  const char* unknown = report.others_share || has_cpu_times(report) ? "" : ", or ops waited for a core";
  const double large = others_are_busy(report) ? 1.25 : kStragglerRatio;  // A shared core also has colder caches
  const auto slower = std::ranges::max_element(report.ops, {}, excess);
  if (slower != report.ops.end() && excess(*slower) > large) {
    return fmt::format(
        "{}ops take longer than in the profile{}, {} of stage {} {:.2f} times as long: the profile is of another "
        "machine or state{}",
        apart, report.profile.empty() ? "" : " " + report.profile, letter(slower->kind), slower->stage, excess(*slower),
        unknown);
  }
  if (report.planned > 0 && report.parts.ops / waits + report.parts.updates > report.planned) {
    return fmt::format("{}ops and updates alone take longer than the planned step: {} is of another machine or state{}",
                       apart, report.profile.empty() ? "the plan" : "the profile " + report.profile, unknown);
  }
  return "";
}

}  // namespace

double seconds_elsewhere(const std::vector<OpTotals>& ranks, std::size_t self) {
  double seconds = 0;
  for (const auto& [key, own] : ranks[self]) {
    OpTotal others;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto found = ranks[rank].find(key);
      if (rank == self || found == ranks[rank].end()) continue;
      others.seconds += found->second.seconds;
      others.count += found->second.count;
    }
    // One op without a counterpart makes the sum incomparable, so nothing is said about the rank.
    if (others.count == 0) return 0;
    seconds += others.seconds / others.count * own.count;
  }
  return seconds;
}

std::vector<OpSpeed> means_of(const OpTotals& totals, const std::vector<std::vector<double>>& planned) {
  std::vector<OpSpeed> means;
  for (const auto& [key, op] : totals) {
    const auto stage = static_cast<std::size_t>(key.first);
    const auto kind = static_cast<std::size_t>(key.second);
    const bool is_planned = stage < planned.size() && kind < planned[stage].size();
    means.push_back({.kind = key.second,
                     .stage = key.first,
                     .seconds = op.seconds / op.count,
                     .planned = is_planned ? planned[stage][kind] : 0,
                     .cpu_seconds = op.cpu_seconds / op.count});
  }
  return means;
}

std::optional<SpeedAnalysis> speed_of(const Flight& flight) {
  std::vector<RankSteps> all;
  std::vector<OpTotals> ops_of_ranks;
  for (const auto& events : flight.ranks) {
    all.push_back(events ? steps_of(*events) : RankSteps());
    ops_of_ranks.push_back(all.back().ops);
  }
  SpeedAnalysis report{.planned = flight.job.planned_step_seconds, .profile = flight.job.planned_by};
  if (flight.verdict) {
    report.others_share = flight.verdict->others_share;
    report.busiest_other = flight.verdict->busiest_other;
  }
  std::vector<double> step_seconds;
  OpTotals ops;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto steps = std::ssize(all[rank].step_seconds);
    if (steps == 0) continue;
    // From sums over all complete steps to one step.
    const double share = 1 / static_cast<double>(steps);
    RankSpeed& speed = report.ranks.emplace_back(
        RankSpeed{.rank = static_cast<int>(rank), .elsewhere = share * seconds_elsewhere(ops_of_ranks, rank)});
    for (const auto& [name, part] : kParts) speed.parts.*part = share * all[rank].total.*part;
    report.steps = report.steps == 0 ? steps : std::min<std::int64_t>(report.steps, steps);
    step_seconds.insert(step_seconds.end(), all[rank].step_seconds.begin(), all[rank].step_seconds.end());
    for (const auto& [key, op] : all[rank].ops) {
      ops[key].seconds += op.seconds;
      ops[key].count += op.count;
    }
  }
  if (report.ranks.empty()) return std::nullopt;
  report.step_seconds = median_of(std::move(step_seconds));
  report.ops = means_of(ops, flight.job.planned_ops);
  for (const auto& [name, part] : kParts) {
    for (const RankSpeed& rank : report.ranks) report.parts.*part += rank.parts.*part;
    report.parts.*part /= static_cast<double>(report.ranks.size());
  }
  return report;
}

std::vector<int> stragglers_of(const Flight& flight) {
  std::vector<int> slow;
  const auto report = speed_of(flight);
  for (const RankSpeed& rank : report ? report->ranks : std::vector<RankSpeed>())
    if (rank.is_straggler()) slow.push_back(rank.rank);
  return slow;
}

std::string load_text(const std::optional<double>& others_share, const std::string& busiest_other) {
  if (others_share) {
    return fmt::format("other processes used {:.0f} % of the cores meanwhile{}", 100 * *others_share,
                       busiest_other.empty() ? "" : ", most of all " + busiest_other);
  }
  return "it is unknown how much other processes used the cores, which is measured at the end of a run, on one host, "
         "over at least half a second";
}

/// Returns a sentence on a rank whose ops take far longer than those of the others, if no two ranks run the same ops. A
/// head makes a stage up to about three times as long as others, so less says nothing.
std::string lone_straggler(const SpeedAnalysis& report) {
  constexpr double kFar = 4;
  const auto has_copies = [](const RankSpeed& rank) { return rank.elsewhere > 0; };
  if (report.ranks.size() < 2 || std::ranges::any_of(report.ranks, has_copies)) return "";
  const auto ops_of = [](const RankSpeed& rank) { return rank.parts.ops; };
  const auto slowest = std::ranges::max_element(report.ranks, {}, ops_of);
  std::vector<double> others;
  for (const RankSpeed& rank : report.ranks)
    if (rank.rank != slowest->rank) others.push_back(ops_of(rank));
  const double usual = median_of(std::move(others));
  if (usual <= 0 || ops_of(*slowest) < kFar * usual) return "";
  return fmt::format("rank {} is slow: its ops take {:.1f} times as long as those of the other stages", slowest->rank,
                     ops_of(*slowest) / usual);
}

/// A straggler makes all other ranks wait, so it explains waits, and comes first. Ops alone cannot explain a step that
/// is longer than they are: then the largest wait does.
std::vector<std::string> slow_causes(const SpeedAnalysis& report) {
  const double waits = waits_for_cores(report);
  std::vector<std::string> causes;
  if (const RankSpeed* slow = straggler_of(report)) {
    causes.push_back(
        fmt::format("rank {} is slow: the same ops take {:.2f} times as long as on other ranks, up to {:.4f} s a step",
                    slow->rank, slow->slowdown(), slow->parts.ops - slow->elsewhere));
  }
  if (const std::string lone = lone_straggler(report); !lone.empty()) causes.push_back(lone);
  if (others_are_busy(report)) {
    const std::string effect = waits < kStragglerRatio
                                   ? ", but ops hardly waited for a core"
                                   : fmt::format(": ops took {}{:.2f} times as long, because they waited for a core",
                                                 has_cpu_times(report) ? "" : "up to ", waits);
    causes.push_back(load_text(report.others_share, report.busiest_other) + effect);
  }
  const std::string ops = slow_ops(report, waits);
  if (!ops.empty()) causes.push_back(ops);
  if (causes.empty()) {
    // Ops are the first part, and are no wait.
    const auto part = std::ranges::max_element(kParts.begin() + 1, kParts.end(), {},
                                               [&](const auto& each) { return report.parts.*each.second; });
    causes.push_back(fmt::format("beside ops, most time goes to {} ({:.0f} % of a step)", part->first,
                                 100 * report.parts.*part->second / report.step_seconds));
  }
  if (!others_are_busy(report)) causes.push_back(load_text(report.others_share, report.busiest_other));
  return causes;
}

std::string to_text(const SpeedAnalysis& report) {
  std::string text = fmt::format("\nspeed of the last {}: {:.4f} s a step (median)", counted(report.steps, "step"),
                                 report.step_seconds);
  if (report.planned > 0) {
    text +=
        fmt::format("; planned {:.4f} s ({:+.1f} %)", report.planned, 100 * (report.planned / report.step_seconds - 1));
  }
  if (report.simulated > 0) text += fmt::format("; simulated with these ops {:.4f} s", report.simulated);
  std::vector<std::string> shares;
  for (const auto& [name, part] : kParts) shares.push_back(fmt::format("{} {:.4f} s", name, report.parts.*part));
  text += fmt::format("\n  of a step, mean over ranks: {}\n  mean of an op:", fmt::join(shares, ", "));
  std::int64_t stage = -1;
  for (const OpSpeed& op : report.ops) {
    if (op.stage != stage) text += fmt::format("\n    stage {:>3}", op.stage);
    text += fmt::format("  {} {:.4f} s", letter(op.kind), op.seconds);
    if (op.planned > 0) text += fmt::format(" (profile {:.4f} s, {:.2f} times)", op.planned, op.seconds / op.planned);
    stage = op.stage;
  }
  return text + fmt::format("\n  {}\n", fmt::join(slow_causes(report), "\n  "));
}

nlohmann::ordered_json to_json(const SpeedAnalysis& report) {
  const auto known = [](double value) { return value > 0 ? nlohmann::ordered_json(value) : nullptr; };
  const auto parts_json = [](const SpeedParts& parts) {
    nlohmann::ordered_json json;
    for (const auto& [name, part] : kParts) json[json_key(name)] = parts.*part;
    return json;
  };
  nlohmann::ordered_json ops = nlohmann::ordered_json::array();
  for (const OpSpeed& op : report.ops) {
    ops.push_back({{"stage", op.stage},
                   {"kind", std::string(1, letter(op.kind))},
                   {"seconds", op.seconds},
                   {"planned", known(op.planned)}});
  }
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankSpeed& rank : report.ranks)
    ranks.push_back({{"rank", rank.rank}, {"seconds", parts_json(rank.parts)}, {"slowdown", rank.slowdown()}});
  return {{"steps", report.steps},
          {"step_seconds", report.step_seconds},
          {"planned_step_seconds", known(report.planned)},
          {"simulated_step_seconds", known(report.simulated)},
          {"others_share", report.others_share ? nlohmann::ordered_json(*report.others_share) : nullptr},
          {"busiest_other", report.busiest_other.empty() ? nullptr : nlohmann::ordered_json(report.busiest_other)},
          {"seconds", parts_json(report.parts)},
          {"ops", ops},
          {"ranks", ranks},
          {"profile", report.profile.empty() ? nullptr : nlohmann::ordered_json(report.profile)},
          {"causes", slow_causes(report)},
          {"text", to_text(report)}};
}

std::optional<nlohmann::ordered_json> read_speed(const std::string& folder) {
  const std::string path = folder + "/" + kSpeedName;
  if (!path_exists(path)) return std::nullopt;
  try {
    auto json = read_ordered_json(read_whole(path));
    (void)json.at("text").get_ref<const std::string&>();  // Throws unless it is a string
    return json;
  } catch (const std::exception& error) {
    reject("{}: is damaged ({})", path, error.what());
  }
}

}  // namespace chimera
