#include "train/observe/observation.h"

#include <algorithm>
#include <limits>

#include "core/cgroup.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/mapped.h"
#include "render/html.h"
#include "render/perfetto.h"
#include "runtime/gather.h"
#include "simulate/costs_json.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"
#include "telemetry/comparison.h"
#include "train/observe/step_summary.h"
#include "train/setup/job_identity.h"
#include "train/setup/job_outputs.h"
#include "transport/clock_offset.h"

namespace chimera {
namespace {

std::string subtitle_of(const Job& job) {
  return fmt::format("{} on {}, {} of {} x {} tokens a step, {}", counted(job.run.schedule.stages, "stage"),
                     counted(job.num_ranks(), "worker"), counted(job.run.micro_batches(), "micro-batch"),
                     job.run.samples_per_op(), job.options.data.sequence, to_text(job.options.numbers.dtype));
}

std::string note_of(const JobShape& job, const StepForecast& made, int cores) {
  std::string note =
      "Predicted by the simulator, fed with the mean of every op of this run; measured is the median step.";
  if (made.turns > 0) {
    note += fmt::format(
        " {} ranks shared {} and took turns, so a step takes at least the sum of their ops over "
        "the cores.",
        job.local_ranks(), counted(cores, "core"));
  }
  return note;
}

constexpr double kMicroseconds = 1e6;

std::vector<double> moved(std::vector<double> times, double offset) {
  for (double& time : times)
    if (time != 0) time += offset;  // 0 means that a time is unknown
  return times;
}

class TraceWriter {
 public:
  TraceWriter(const JobShape& job, const std::vector<std::vector<MeasuredStep>>& steps) : job_(job), steps_(steps) {}

  std::string write(const std::vector<std::string>& changes) {
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const auto& groups = steps_[s];
      // Bubbles at the end of a step last until the next step starts.
      const double next = s + 1 < steps_.size() ? steps_[s + 1].front().start : std::numeric_limits<double>::infinity();
      // write_group() collects sums and transfers of all steps; write_lanes() then writes them.
      for (std::size_t g = 0; g < groups.size(); ++g) write_group(groups[g], next - groups[g].start);
    }
    for (auto& [place, intervals] : intervals_)
      write_lanes(place.first, RankId(static_cast<std::int64_t>(place.second)), intervals);
    if (changes.empty()) return events_.text();
    events_.name(TraceProcess::Order, {0, "order of ops"});
    const MeasuredStep& last = steps_.back().front();
    events_.slice(TraceProcess::Order, 0, "order changed in " + changes.back(), 0,
                  last.start + last.timeline.makespan - steps_.front().front().start,
                  fmt::format(R"("changes":{})", json_text(nlohmann::json(changes))));
    return events_.text();
  }

 private:
  struct Interval {
    double start = 0;
    double end = 0;
    std::string name;
    std::string arguments;
  };

  [[nodiscard]] std::string name_of(RankId rank) const {
    const GroupWorker place = job_.run.ranks.place(job_.ranks().in_lane(rank));
    const TensorPlace tensor = job_.ranks().place(rank);
    return (job_.run.ranks.data_parallel == 1 ? "" : fmt::format("group {}, ", place.group.value())) +
           fmt::format("worker {}", place.worker.value()) +
           (tensor.ranks == 1 ? "" : fmt::format(", t {}", tensor.rank));
  }

  /// The first rank starts the next step at `end`.
  static Explanation until(Explanation explanation, double end) {
    for (auto& bubbles : explanation.bubbles) {
      std::erase_if(bubbles, [&](const Bubble& bubble) { return bubble.start >= end; });
      for (Bubble& bubble : bubbles) bubble.end = std::min(bubble.end, end);
    }
    return explanation;
  }

  void write_group(const MeasuredStep& step, double end) {
    TraceFrame frame{.start = step.start - steps_.front().front().start, .tracks = {}};
    for (std::int64_t w = 0; w < job_.run.ranks.workers; ++w) {
      const RankId rank = job_.ranks().rank(job_.run.ranks.rank({step.group, WorkerId(w)}), step.lane);
      frame.tracks.push_back({rank.index(), name_of(rank)});
    }
    add_ops(job_.run.schedule, step.timeline, until(step.explanation, end), frame, events_);
    for (std::size_t w = 0; w < frame.tracks.size(); ++w) {
      const std::size_t rank = frame.tracks[w].number;
      auto& sums = intervals_[{TraceProcess::AllReduces, rank}];
      for (const auto& [op, time] : step.recomputations[w]) {
        events_.slice(TraceProcess::Ops, rank, "recompute " + to_text(op), frame.start + time.start,
                      frame.start + time.end, fmt::format(R"("step":{})", step.step + 1));
      }
      for (const TimedAllReduce& sum : step.launched[w]) {
        sums.push_back({frame.start + sum.start, frame.start + sum.end,
                        fmt::format("all-reduce of stage {}", sum.group.value()),
                        fmt::format(R"("stage":{},"step":{})", sum.group.value(), step.step + 1)});
      }
    }
    for (const MeasuredTransfer& transfer : step.transfers) {
      intervals_[{TraceProcess::Transfers, frame.tracks[transfer.to].number}].push_back(
          {frame.start + transfer.sent, frame.start + std::max(transfer.sent, transfer.arrived), to_text(transfer.made),
           fmt::format(R"("from":"{}","to":"{}","awaited":{},"step":{})", frame.tracks[transfer.from].name,
                       frame.tracks[transfer.to].name, frame.start + transfer.awaited, step.step + 1)});
    }
  }

  void write_lanes(TraceProcess process, RankId rank, std::vector<Interval>& intervals) {
    constexpr std::size_t kMaxLanes = 1000;  // Per rank; others share the last
    std::ranges::sort(intervals, {}, &Interval::start);
    // A track shows intervals that do not overlap, so each interval takes the first lane that is free at its start.
    std::vector<double> free_from;  // [lane]
    for (const Interval& interval : intervals) {
      const auto is_free = [&](double end) { return end <= interval.start; };
      const auto free = static_cast<std::size_t>(std::ranges::find_if(free_from, is_free) - free_from.begin());
      if (free == free_from.size()) free_from.push_back(0);
      free_from[free] = interval.end;
      const std::size_t lane = std::min(free, kMaxLanes - 1);
      const std::size_t track = rank.index() * kMaxLanes + lane;
      events_.name(process, {track, lane == 0 ? name_of(rank) : fmt::format("{} ({})", name_of(rank), lane + 1)});
      events_.slice(process, track, interval.name, interval.start, interval.end, interval.arguments);
    }
  }

  const JobShape& job_;
  const std::vector<std::vector<MeasuredStep>>& steps_;
  std::map<std::pair<TraceProcess, std::size_t>, std::vector<Interval>> intervals_;  // By process and rank
  TraceEvents events_{kMicroseconds};
};

const MeasuredStep& median_step(const std::vector<std::vector<MeasuredStep>>& steps) {
  auto of_group_0 = mapped(steps, [](const auto& groups) { return &groups.front(); });
  // Groups end their steps together, so one of them stands for all.
  const auto middle = of_group_0.begin() + static_cast<std::ptrdiff_t>(of_group_0.size() / 2);
  std::ranges::nth_element(of_group_0, middle, {}, [](const auto* step) { return step->timeline.makespan; });
  return **middle;
}

/// Returns the --report page (telemetry/comparison.h). `metrics` holds the lines of the steps, `timelines` the measured
/// and the simulated step.
std::string report_text(const Job& job, const RunSummary& run, const std::string& metrics,
                        std::vector<Panel> timelines) {
  const int cores = available_cores();
  const StepForecast made = forecast(job, run, cores);
  RunPage report{.run = {.name = fmt::format("{} with {}", job.model.name, job.run.schedule.name),
                         .metrics = "--report",
                         .steps = parse_metrics("--report", metrics),
                         .configuration = flatten(run_record(job))},
                 .subtitle = subtitle_of(job),
                 .forecasts = {{"step time", "s", made.step_seconds, run.step_seconds}},
                 .forecast_note = note_of(job, made, cores),
                 .timelines = std::move(timelines)};
  // If ranks share cores, idle time is mostly waiting for a core, which no bubble explains.
  if (report.timelines.size() == 2 && made.turns == 0) {
    report.forecasts.push_back({"bubble ratio", "share of the step", report.timelines[1].timeline.bubble_ratio,
                                report.timelines[0].timeline.bubble_ratio});
  }
  return to_page(report);
}

}  // namespace

FlightJob flight_job(const JobShape& job, const PlannedTimes& planned) {
  FlightJob flight{.schedule = job.run.schedule.name,
                   .ranks = std::vector<GroupWorker>(job.launched_count(), kAbsent),
                   .sums = job.rank_groups(),
                   .tensor_parallel = job.tensor_parallel,
                   .planned_step_seconds = planned.step_seconds,
                   .planned_ops = planned.ops,
                   .planned_by = planned.by};
  // Records are by the ranks of the launch. After a loss, the remaining ranks have other numbers, and lost ones stay
  // absent.
  for (RankId rank(0); rank.value() < job.num_ranks(); rank = RankId(rank.value() + 1))
    flight.ranks[job.launched_rank(rank).index()] = job.run.ranks.place(job.ranks().in_lane(rank));
  for (std::vector<RankId>& members : flight.sums)
    for (RankId& rank : members) rank = job.launched_rank(rank);
  return flight;
}

std::vector<RecordedStep> gather_steps(const JobShape& job, const DeviceOptions& device, RankId rank,
                                       Transport& transport, const Tracer& tracer) {
  const bool on_gpus = device.kind == DeviceKind::Cuda;
  // Thread ranks share a clock. Processes on several hosts do not.
  const bool one_clock =
      device.transport == TransportKind::Threads || (on_gpus && job.local_ranks() == job.num_ranks());
  double offset = 0;
  if (!one_clock)
    offset = on_gpus ? clock_offset_by_sums(transport, rank) : measure_clock_offset(transport, rank, job.num_ranks());
  const auto of_all = [&](const std::vector<double>& times) {
    return gather(moved(times, offset), rank, job.num_ranks(), transport);
  };
  return mapped(tracer.steps(), [&](const auto& trace) {
    return RecordedStep{trace->step, of_all(trace->boundaries), of_all(trace->all_reduce_ends)};
  });
}

std::vector<std::vector<MeasuredStep>> measured_steps(const JobShape& job, const std::vector<RecordedStep>& recorded) {
  std::vector<std::vector<MeasuredStep>> steps;
  for (const RecordedStep& step : recorded) {
    auto& groups = steps.emplace_back();
    for (std::int64_t group = 0; group < job.run.ranks.data_parallel; ++group)
      for (std::int64_t lane = 0; lane < job.tensor_parallel; ++lane)
        groups.push_back(measured_step(job, GroupId(group), step, lane));
  }
  return steps;
}

std::string trace_text(const JobShape& job, const std::vector<std::vector<MeasuredStep>>& steps,
                       const std::vector<std::string>& changes) {
  return TraceWriter(job, steps).write(changes);
}

std::vector<Panel> timeline_panels(const Schedule& schedule, const std::vector<std::vector<MeasuredStep>>& steps,
                                   const CostModel& costs) {
  // The median step shows usual behavior; a mean of steps has no timeline.
  const MeasuredStep& step = median_step(steps);
  Panel simulated = panel_of(schedule, simulate(schedule, costs), costs);
  simulated.title = fmt::format("{}, simulated with the measured op times", schedule.name);
  Panel measured = simulated;
  measured.title = fmt::format("{}, step {} as it ran, in seconds", schedule.name, step.step + 1);
  measured.timeline = step.timeline;
  measured.timeline.lower_bound = simulated.timeline.lower_bound;
  measured.explanation = step.explanation;
  measured.totals = totals_of(schedule, measured.timeline, measured.explanation, costs);
  return {std::move(measured), std::move(simulated)};
}

void write_observations(const Job& job, const std::vector<RecordedStep>& recorded, const RunSummary& run,
                        const std::string& metrics) {
  const OutputOptions& output = job.options.output;
  if (recorded.empty())
    return print_message(
        "--trace, --op-times, --timeline, --report: not written, no step ran on all ranks after a loss");
  const auto write = [&](const char* flag, const std::string& path, const auto& text) {
    if (!path.empty()) write_final_output(job.replaces_outputs(), flag, path, text());
  };
  auto steps = measured_steps(job, recorded);
  write("--trace", output.trace,
        [&] { return trace_text(job, steps, changes_of_order(parse_metrics("--trace", metrics))); });
  if (steps.size() > 1 && recorded.front().step == 0) steps.erase(steps.begin());  // First use of memory and caches
  const CostModel costs = measured_costs(job, run.op_times, steps);
  const auto panels = [&] { return timeline_panels(job.run.schedule, steps, costs); };
  write("--op-times", output.op_times, [&] { return costs_to_json(costs); });
  write("--timeline", output.timeline, [&] { return to_html(panels()); });
  write("--report", output.report, [&] { return report_text(job, run, metrics, panels()); });
}

}  // namespace chimera
