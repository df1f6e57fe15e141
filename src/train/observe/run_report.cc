#include "train/observe/run_report.h"

#include <fmt/format.h>

#include <utility>

#include "core/cores.h"
#include "telemetry/report_page.h"
#include "train/observe/progress_report.h"
#include "train/observe/run_record.h"

namespace chimera {
namespace {

std::string subtitle_of(const Job& job) {
  const std::int64_t ranks = job.num_ranks();
  return fmt::format("{} stages on {} {}, {} micro-batches of {} x {} tokens a step, {}", job.schedule.stages, ranks,
                     ranks == 1 ? "worker" : "workers", job.micro_batches(), job.micro_batch_size(),
                     job.options.sequence, to_text(job.options.dtype));
}

std::string note_of(const Job& job, const StepForecast& made, int cores) {
  std::string note =
      "Predicted by the simulator, fed with the mean of every op of this run; measured is the median step.";
  if (made.turns > 0) {
    note += fmt::format(
        " {} ranks shared {} cores and took turns, so a step takes at least the sum of their ops over "
        "the cores.",
        job.local_ranks(), cores);
  }
  return note;
}

}  // namespace

std::string report_text(const Job& job, const RunSummary& run, const std::string& metrics,
                        std::vector<Panel> timelines) {
  const int cores = available_cores();
  const StepForecast made = forecast(job, run, cores);
  RunReport report{.run = {.name = fmt::format("{} with {}", job.model.name, job.schedule.name),
                           .metrics = "--report",
                           .steps = parse_metrics("--report", metrics),
                           .configuration = flattened(run_record(job))},
                   .subtitle = subtitle_of(job),
                   .forecasts = {{"step time", "s", made.step_seconds, run.step_seconds}},
                   .forecast_note = note_of(job, made, cores),
                   .timelines = std::move(timelines)};
  if (report.timelines.size() == 2 && made.turns == 0) {
    report.forecasts.push_back({"bubble ratio", "share of the step", report.timelines[1].timeline.bubble_ratio,
                                report.timelines[0].timeline.bubble_ratio});
  }
  return to_page(report);
}

}  // namespace chimera
