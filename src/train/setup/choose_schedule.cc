#include <algorithm>
#include <limits>

#include "checkpoint/checkpoint_folder.h"
#include "core/error.h"
#include "generate/registry.h"
#include "plan/plan.h"
#include "train/setup/device.h"
#include "train/setup/dry_run.h"
#include "train/setup/prepare_job.h"
#include "train/setup/rerouted_job.h"

namespace chimera {
namespace {

constexpr double kUsualCore = 1e11;  // FLOP/s in float32

struct RankedJob {
  Job job;
  Forecast step;
};

/// The speed is not measured, because two starts of one command must choose alike.
MachineProfile machine_of(const JobShape& job, const TrainOptions& options) {
  const bool chooses_alone = options.device.launcher.empty() && !options.device.is_supervised;
  MachineProfile machine =
      chooses_alone ? assumed_machine(job, options, kUsualCore) : machine_at(kUsualCore, job, options);
  if (options.schedule.profile != nullptr) machine = *options.schedule.profile;
  if (machine.memory_bytes == 0) machine.memory_bytes = options.schedule.assumed_bytes;
  if (options.memory.gib > 0) machine.memory_bytes = options.memory.gib * kGiB;
  return machine;
}

/// Returns the job with a schedule, whose parameters have their given or default values.
Job job_with(Job job, const std::string& name) {
  ScheduleOptions& schedule = job.options.schedule;
  schedule.name = name;
  if (name != "none") {
    const Generator& generator = find_generator(name);
    // D and N mean the same to all generators; of the other parameters, each takes its own.
    // Those that were not given get their defaults.
    const PipelineShape counts = schedule.shape;
    schedule.shape = schedule.shape_for ? schedule.shape_for(generator) : default_shape(generator, 0, 0);
    schedule.shape.stages = counts.stages;
    schedule.shape.micro_batches = counts.micro_batches;
  }
  return resolve_shape(std::move(job));
}

/// Returns an empty text if no run is resumed, or if its schedule was a file.
std::string schedule_of_resumed(const TrainOptions& options) {
  // Read from the manifest alone: the weights are not opened before the shape of the run is known.
  const std::string& from = options.resume.from;
  if (from.empty() || from == "none") return "";
  try {
    const auto found = find_checkpoint(from == "auto" ? options.checkpoint.folder : from, /*threads=*/0);
    const std::string name = found.checkpoint->manifest.run.at("layout").at("schedule");
    const std::vector<std::string> known = schedule_names();
    return name == "none" || std::ranges::find(known, name) != known.end() ? name : "";
  } catch (const Error&) {  // open_checkpoints() reports it
  } catch (const nlohmann::json::exception&) {
  }
  return "";
}

std::vector<RankedJob> predict_all(const Job& job) {
  const MemoryOptions& memory = job.options.memory;
  const bool lists_stages = memory.recompute.rule == StageRule::Listed || memory.recompute.counts.size() > 1 ||
                            memory.offload.rule == StageRule::Listed || memory.offload.counts.size() > 1;
  const std::int64_t stages = job.options.schedule.shape.stages;
  const bool has_pipeline = stages > 1;  // All schedules are equal without one
  std::vector<RankedJob> rows;
  for (const std::string& name : has_pipeline ? synchronous_schedules() : std::vector<std::string>{kPlainSchedule}) {
    try {
      Job each = partition_job(job_with(job, name));
      // Listed numbers of stages mean those of schedules with a stage per worker.
      if (lists_stages && each.run.schedule.stages != stages) continue;
      Forecast step = forecast(each, machine_of(each, each.options));
      step.shares_memory = !uses_gpu(job.options) && job.options.schedule.profile == nullptr;
      rows.push_back({std::move(each), std::move(step)});
    } catch (const Error&) {  // The schedule does not accept the flags
    }
  }
  return rows;
}

/// Sorts the schedules that fit or, if none does, all by memory.
void sort(std::vector<RankedJob>& rows) {
  const auto too_large = [](const RankedJob& row) { return !row.step.fits(); };
  const bool any_fits = !std::ranges::all_of(rows, too_large);
  // If nothing fits, the run is refused later, with the line that says what the smallest needs.
  if (any_fits) std::erase_if(rows, too_large);
  // Within the error of ratios between layouts, the one with the most room wins (plan/plan.h).
  double least = std::numeric_limits<double>::infinity();
  for (const RankedJob& row : rows) least = std::min(least, row.step.step_seconds);
  std::ranges::stable_sort(rows, {}, [&](const RankedJob& row) {
    const bool is_tied = !any_fits || row.step.step_seconds <= (1 + kTie) * least;
    return is_tied ? std::pair(0.0, row.step.peak_bytes()) : std::pair(row.step.step_seconds, 0.0);
  });
}

bool can_run(const Job& job) {
  try {
    if (job.options.recovery.recover == Recover::Reroute) static_cast<void>(spare_patience(job));
    Job lowered = job;
    if (uses_gpu(job.options)) lower_programs(lowered);
    static_cast<void>(gpu_resources(lowered, lowered.options));
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

Job choose_schedule(const TrainOptions& options) {
  Job job = resolve_model(options);
  // A schedule that the user has named is never replaced.
  if (options.schedule.given != nullptr || !options.schedule.name.empty()) return resolve_shape(std::move(job));
  if (const std::string own = schedule_of_resumed(options); !own.empty()) return job_with(std::move(job), own);
  std::vector<RankedJob> rows = predict_all(job);
  sort(rows);
  // Lowering programs is expensive, so it is tried in the order of rank and ends at the first that can run.
  const auto best = std::ranges::find_if(rows, [](const RankedJob& row) { return can_run(row.job); });
  if (best == rows.end()) return job_with(std::move(job), kDefaultSchedule);
  // Not the predicted job itself: it is partitioned, which the caller does again with its own profile.
  Job chosen = job_with(std::move(job), best->job.options.schedule.name);
  if (const auto next = best + 1; next != rows.end()) {
    chosen.runner_up = {next->job.options.schedule.name, next->step.step_seconds / best->step.step_seconds - 1,
                        next->step.peak_bytes() / best->step.peak_bytes() - 1};
  }
  return chosen;
}

}  // namespace chimera
