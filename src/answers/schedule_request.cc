// ScheduleRequest makes a schedule from a name, a file or a text. fastest() chooses among the parameters whose best
// value depends on costs, by simulating each. LostRequest turns lost and slow workers into a task for follow_costs().

#include "answers/schedule_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "check/check_schedule.h"
#include "core/complete_name.h"
#include "core/reject.h"
#include "generate/registry.h"
#include "schedule/schedule_csv.h"
#include "search/follow.h"

namespace chimera {
namespace {

std::string summary_of(const FollowedCosts& found, std::int64_t workers, std::int64_t lost) {
  const auto all = static_cast<double>(workers);
  std::string text = fmt::format(
      "makespan {:.6g}, {:.2f} times the healthy {:.6g} ({}); the busiest {} needs {:.6g}; {:.6g} stage units "
      "in flight\n",
      found.makespan, found.makespan / found.healthy_makespan, found.healthy_makespan,
      found.kept_makespan ? fmt::format("order kept: {:.6g}", *found.kept_makespan)
                          : fmt::format("workers / survivors: {:.2f}", all / (all - static_cast<double>(lost))),
      lost > 0 ? "survivor" : "worker", found.bound, found.peak_in_flight);
  for (const ExtraCopy& copy : found.copies)
    text += fmt::format("extra copy: stage {} on worker {}\n", copy.stage.value(), copy.worker.value());
  return text;
}

/// Parses `WORKER:FACTOR,...`.
std::vector<std::pair<std::int64_t, double>> parse_slow(const std::string& text) {
  std::vector<std::pair<std::int64_t, double>> slow;
  for (const std::string_view entry : split_at_commas(text)) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos)
      reject("--slow: '{}' is not WORKER:FACTOR, such as 0:2 for a worker 0 whose ops take twice as long", entry);
    // `inf` is a lost worker. Factors below 1 are refused: workers of speed 1 are the fastest.
    const std::string factor(entry.substr(colon + 1));
    slow.emplace_back(parse_count("--slow", std::string(entry.substr(0, colon))),
                      factor == "inf" ? std::numeric_limits<double>::infinity() : parse_amount("--slow", factor, 1));
  }
  return slow;
}

}  // namespace

void ScheduleRequest::visit(Door& door) {
  door.field({"name"}, name);
  door.field({"text"}, text);
  shape.visit(door);
}

void ScheduleRequest::visit_with(Door& door) {
  door.text({"with", "also draw this NAME (same D and N), FILE.json or FILE.csv; repeatable", "NAME", 0, 0, nullptr, 0},
            [this](const std::string& names) {
              for (const std::string_view other : split_at_commas(names))
                with.push_back(complete_name(std::string(other), schedule_names()));
            });
}

std::string ScheduleRequest::path() const { return file.empty() && load && names_schedule_file(name) ? name : file; }

Schedule ScheduleRequest::make(const MakeSchedule& make) const {
  if (!is_named()) {
    // A file has a shape of its own, which fields cannot change.
    shape.require_absent(text ? "the text of the schedule" : path());
    Schedule schedule = text ? schedule_from_text(*text, "schedule").schedule : load(path());
    require_few(static_cast<double>(num_ops(schedule)));
    return schedule;
  }
  if (name.empty()) reject("give the name of a schedule, or its text");
  return shape.generate(complete_name(name, schedule_names()), with,
                        [&](const Generator& generator, const PipelineShape& asked) {
                          // A lower bound: every worker runs each of its stages at least forward and backward.
                          if (!generator.find_shape_error(asked)) {
                            const auto stages = static_cast<double>(generator.stages_per_worker(asked));
                            require_few(2.0 * static_cast<double>(asked.stages) *
                                        static_cast<double>(asked.micro_batches) * std::max(1.0, stages));
                          }
                          Schedule schedule = make(generator, asked);
                          require_few(static_cast<double>(num_ops(schedule)));
                          return schedule;
                        });
}

Schedule ScheduleRequest::make_valid(const MakeSchedule& make, const PairRequest& pairs) const {
  Schedule schedule = this->make(make);
  if (is_named()) return schedule;
  const auto violations = text ? check(schedule) : std::vector<Violation>();
  if (!violations.empty()) throw ScheduleError(violations.front().message);
  return pairs.apply_to(std::move(schedule));
}

std::vector<Schedule> ScheduleRequest::others(const Schedule& first, const MakeSchedule& make) const {
  std::vector<Schedule> schedules;
  for (const std::string& other : with) {
    if (load && names_schedule_file(other)) {
      schedules.push_back(load(other));
    } else {
      const Generator& generator = find_generator(other);
      schedules.push_back(make(generator, shape.shape_next_to(first, generator)));
    }
  }
  return schedules;
}

void ScheduleRequest::require_few(double ops) const {
  constexpr double kMostPlaygroundOps = 1e6;
  if (load || ops <= kMostPlaygroundOps) return;
  reject(
      "{:.0f} ops are more than the {:.0f} that the playground holds; use fewer stages or "
      "micro-batches, or the program",
      ops, kMostPlaygroundOps);
}

bool names_schedule_file(const std::string& name) {
  return name == "-" || name.ends_with(".json") || name.ends_with(".csv") || name.find('/') != std::string::npos;
}

MakeSchedule fastest(const ShapeRequest& shape, const PairRequest& pairs,
                     const std::function<double(const Schedule&)>& makespan) {
  return [&shape, &pairs, makespan](const Generator& generator, const PipelineShape& asked) {
    const std::vector<PipelineShape> shapes = shape.variants(generator, asked, VariedParameters::ByCosts);
    // Only the first shape is the user's own, so only its refusal proposes other schedules.
    Schedule best = pairs.apply_to(generate_or_suggest(generator, shapes.front()));
    // Nothing to choose: `makespan` may be costly, and may fail for this schedule with a better message later.
    if (shapes.size() == 1) return best;
    double least = makespan(best);
    for (const PipelineShape& other : std::span(shapes).subspan(1)) {
      Schedule schedule = pairs.apply_to(generator.generate(other));
      const double time = makespan(schedule);
      if (time >= least) continue;
      least = time;
      best = std::move(schedule);
    }
    return best;
  };
}

void LostRequest::visit(Door& door) {
  door.field({"without", "lost workers, whose ops others run; worker w of group g is g D + w", "WORKER,..."}, without);
  door.text({"slow", "slow workers, as WORKER:FACTOR,...; others run a part of their ops", "LIST"},
            [this](const std::string& text) { slow = parse_slow(text); });
  door.field({"extra_copies", "with --without, --slow: further copies of stages, to balance (default 0)"},
             extra_copies);
  door.field({.name = "effort",
              .meaning = fmt::format("with --without, --slow: ops timed for a better order (default {})", effort),
              .least = 1},
             effort);
}

FollowedSchedule LostRequest::apply_to(const Schedule& healthy, std::int64_t groups,
                                       const std::function<CostModel(const Schedule&)>& costs_of) const {
  if (!is_given()) {
    if (extra_copies > 0) reject("--extra-copies needs --without or --slow");
    if (effort != LostRequest().effort) reject("--effort needs --without or --slow");
    return {.schedule = healthy, .costs = costs_of(healthy)};
  }
  std::vector<std::string> flags;
  if (!without.empty()) flags.push_back(fmt::format("--without {}", fmt::join(without, ",")));
  for (const auto& [worker, factor] : slow) flags.push_back(fmt::format("--slow {}:{:g}", worker, factor));
  try {
    FollowTask task{.detours = {.healthy = healthy, .groups = groups, .slow = {}},
                    .costs = {},
                    .extra_copies = extra_copies,
                    .effort = effort};
    for (const std::int64_t worker : without) task.detours.slow.push_back({WorkerId(worker)});
    // An infinite factor is a speed of 0: a lost worker.
    for (const auto& [worker, factor] : slow) task.detours.slow.push_back({WorkerId(worker), 1 / factor});
    std::vector<double> speeds = worker_speeds(task.detours);
    task.costs = costs_of(in_all_groups(healthy, groups));
    // A worker may be slow by --slow and by the factors of --costs. Both are multiplied into one speed for the choice
    // of paths, and into one factor for the simulation. A lost worker keeps the factor 1, since it has no ops.
    const std::vector<double> before = task.costs.workers;
    task.detours.slow.clear();
    task.costs.workers.assign(speeds.size(), 1);
    for (std::size_t w = 0; w < speeds.size(); ++w) {
      if (!before.empty()) speeds[w] /= before[w % before.size()];
      if (speeds[w] > 0) task.costs.workers[w] = 1 / speeds[w];
      if (speeds[w] != 1) task.detours.slow.push_back({WorkerId(static_cast<std::int64_t>(w)), speeds[w]});
    }
    FollowedCosts found = follow_costs(task);
    return {.schedule = std::move(found.schedule),
            .costs = std::move(task.costs),
            .summary = summary_of(found, std::ssize(speeds), std::ranges::count(speeds, 0)),
            .kept_makespan = found.kept_makespan,
            .bound = found.bound};
    // The search of routes does not know the flags that made workers slow.
  } catch (const ConfigError& error) {
    reject("{}: {}", fmt::join(flags, ", "), error.what());
  }
}

}  // namespace chimera
