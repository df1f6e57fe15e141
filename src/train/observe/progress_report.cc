#include "train/observe/progress_report.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/shell_words.h"
#include "core/signals.h"
#include "core/terminal.h"
#include "model_config/parameters.h"
#include "render/chart.h"
#include "render/panel.h"
#include "render/text.h"
#include "telemetry/run_history.h"
#include "train/setup/device.h"

namespace chimera {
namespace {

/// Narrow lines drop the highest `spare` above 0 first.
struct LineField {
  std::string text;
  int spare = 0;
};

std::string joined_within(std::vector<LineField> parts, std::size_t columns) {
  while (true) {
    std::string line;
    for (const LineField& part : parts) line += (line.empty() ? "" : "  ") + part.text;
    // A field with spare 0 is never dropped.
    const auto next = std::ranges::max_element(parts, {}, &LineField::spare);
    if (line.size() <= columns || next->spare == 0) return line;
    parts.erase(next);
  }
}

bool fits_a_page(const Schedule& schedule) { return schedule.stages <= 16 && schedule.micro_batches <= 32; }

std::string groups_in_words(const JobShape& job) {
  std::string text;
  if (job.run.ranks.data_parallel > 1)
    text += fmt::format(", {} groups of {} side by side", job.run.ranks.data_parallel, job.run.ranks.workers);
  if (job.tensor_parallel > 1) text += fmt::format(", {} on the layers of a worker", job.tensor_parallel);
  return text;
}

std::string time_of_day() { return fmt::format("{:%H:%M:%S}", fmt::localtime(std::time(nullptr))); }

/// Returns `data: 3 files, 1.14M tokens for training, 60k for validation`.
std::string data_line(const Corpus& corpus) {
  const auto tokens_of = [&](Split split) {
    std::int64_t sum = 0;
    for (const TokenView& source : corpus.split(split).sources) sum += source.size();
    return short_number(static_cast<double>(sum));
  };
  return fmt::format("data: {}, {} tokens for training, {} for validation", counted(corpus.opened.files.size(), "file"),
                     tokens_of(Split::Train), tokens_of(Split::Validation));
}

}  // namespace

std::string memory_text(double bytes) {
  constexpr double kMiB = 1 << 20;
  return bytes < 1024 * kMiB ? fmt::format("{:.0f} MiB", bytes / kMiB) : fmt::format("{:.2f} GiB", bytes / kMiB / 1024);
}

double step_flops(const JobShape& job, const TrainOptions& options) {
  Workload workload = workload_of(options);
  workload.micro_batch_size = job.run.samples_per_op();
  // model_flops() is for one micro-batch.
  return model_flops(job.model, workload) * static_cast<double>(job.run.mini_batch() / job.run.samples_per_op());
}

double RemainingTime::seconds_left(std::int64_t step, double seconds) {
  constexpr std::size_t kSteps = 20;
  // The first step also loads libraries and allocates memory.
  if (std::exchange(has_first_, last_.empty())) last_.clear();
  last_.push_back(seconds);
  if (last_.size() > kSteps) last_.pop_front();
  const double mean = std::accumulate(last_.begin(), last_.end(), 0.0) / static_cast<double>(last_.size());
  return mean * static_cast<double>(steps_ - step);
}

std::string tokens_per_second(double rate) {
  return rate < 10'000 ? fmt::format("{:.0f} tok/s", rate) : fmt::format("{:.1f} ktok/s", rate / 1000);
}

std::string progress_line(const StepMetrics& metrics, std::int64_t steps, std::size_t columns) {
  std::vector<LineField> parts = {{fmt::format("step {}/{}", metrics.step, steps)},
                                  {fmt::format("loss {:.4f}", metrics.loss)}};
  if (metrics.validation_loss) parts.push_back({fmt::format("validation {:.4f}", *metrics.validation_loss)});
  parts.push_back({fmt::format("grad {:.2f}", metrics.gradient_norm), 5});
  parts.push_back({tokens_per_second(metrics.tokens_per_second), 1});
  if (metrics.utilization) {
    const char* wrong = *metrics.utilization > 1 ? " (impossible)" : "";  // run.cc says why
    parts.push_back({fmt::format("MFU {:.1f} %{}", 100 * *metrics.utilization, wrong), 3});
  }
  if (metrics.peak_memory_bytes > 0) parts.push_back({memory_text(metrics.peak_memory_bytes), 4});
  parts.push_back({fmt::format("{:.3f} s/step", metrics.step_seconds), 6});
  const double left = metrics.seconds_left.value_or(metrics.step_seconds * static_cast<double>(steps - metrics.step));
  parts.push_back({"ETA " + duration_text(left), 2});
  return joined_within(std::move(parts), columns);
}

std::string sample_line(const std::string& sample) {
  std::string line = "  sample: " + sample;
  // U+0080 .. U+009F control terminals too.
  for (std::size_t i = 0; i + 1 < line.size(); ++i) {
    // UTF-8 of U+0080 to U+009F is C2 80 to C2 9F.
    if (line[i] == '\xC2' && static_cast<unsigned char>(line[i + 1]) < 0xA0) line.replace(i, 2, " ");
  }
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return line;
}

bool LogInterval::shows(std::int64_t step, double seconds) const {
  if (step == 1 || step == steps_) return true;
  if (every_.steps > 0) return step % every_.steps == 0;
  if (every_.seconds > 0) return seconds >= every_.seconds;
  // By default about 20 lines per run, and a line at the latest after kLogSeconds.
  return step % std::max<std::int64_t>(steps_ / 20, 1) == 0 || seconds >= kLogSeconds;
}

std::string running_line(std::int64_t step, std::int64_t steps, std::chrono::duration<double> time) {
  return fmt::format("step {}/{}  running for {}", step, steps, duration_text(time.count()));
}

Progress::Progress(std::int64_t first_step, std::int64_t steps, SaveInterval every)
    : steps_(steps), pace_(steps, every), on_terminal_(supports_escapes(STDERR_FILENO)), running_(first_step + 1) {
  if (running_ > steps_) return;
  // This thread must not take a core from a rank when it wakes up.
  const BackgroundThreads background;
  watcher_ = std::jthread([this](const std::stop_token& stopped) { watch(stopped); });
}

// Writes each line at once, because the launcher writes there too.
void Progress::put(const std::string& line, bool stays) {
  if (!on_terminal_) return messages().write(line + "\n");
  if (stays) return messages().write("\r\033[K" + line + "\n");
  messages().show("\r\033[K" + clip_lines(line, terminal_columns(STDERR_FILENO)));
}

void Progress::show(const StepMetrics& metrics) {
  const std::size_t columns = terminal_columns(STDERR_FILENO);
  std::string line =
      progress_line(metrics, steps_, columns == 0 ? kProgressColumns : std::min(columns, kProgressColumns));
  // The cursor must not reach the last column, or a terminal would wrap the line that \r rewrites.
  const std::string time = "  " + time_of_day();
  if (!on_terminal_ || line.size() + time.size() < columns) line += time;
  if (metrics.sample) line.append("\n").append(sample_line(*metrics.sample));
  // Lines with a validation or sample stay; others on a terminal are rewritten by the next line.
  const bool stays = metrics.step == steps_ || metrics.validation_loss || metrics.sample;
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  const bool is_due = pace_.shows(metrics.step, std::chrono::duration<double>(now - last_line_).count());
  running_ = metrics.step + 1;
  began_ = now;
  // No step is running any more.
  if (metrics.step == steps_) watcher_.request_stop();
  if (!on_terminal_ && !stays && !is_due) return;
  last_line_ = now;
  put(line, stays);
}

/// Reports the running step whenever no line has appeared for a while.
void Progress::watch(const std::stop_token& stopped) {
  const auto silence = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pace_.max_silence()));
  std::unique_lock lock(mutex_);
  while (true) {
    constexpr auto kShortStep = std::chrono::seconds(1);  // its line appears soon
    const auto due = [&] { return std::max<Clock::time_point>(last_line_ + silence, began_ + kShortStep); };
    wakes_.wait_until(lock, stopped, due(), [] { return false; });
    if (stopped.stop_requested()) return;
    const Clock::time_point now = Clock::now();
    if (now < due()) continue;  // a step was shown meanwhile
    last_line_ = now;
    put(running_line(running_, steps_, now - began_) + "  " + time_of_day(), false);
  }
}

std::string end_of_run_text(const Job& job, const std::string& exported) {
  const TrainOptions& options = job.options;
  const std::string& folder = options.checkpoint.folder;
  std::string text;
  if (job.first_step >= options.updates.steps) {
    text += fmt::format("nothing is left to do: all {} steps are done; a larger --steps trains on\n",
                        options.updates.steps);
  }
  if (!folder.empty()) text += fmt::format("saved {}\n", checkpoint_path(folder, options.updates.steps));
  if (!exported.empty()) text += fmt::format("exported {}\n", exported);
  const std::string& model = exported.empty() ? folder : exported;
  if (model.empty()) return text + "the trained model is not kept, as there was no --checkpoint and no --export\n";
  if (!options.output.report.empty()) text += fmt::format("report: {}\n", options.output.report);
  if (!folder.empty()) text += "continue: the same command with a larger --steps and --resume auto\n";
  text += "use the model: ";
  if (is_causal(job.model.family)) {
    text += fmt::format("chimera generate --from {} --prompt TEXT{}, or ", shell_word(model),
                        job.data.tokenizer.empty() ? " --tokenizer FILE" : "");
  }
  return text + fmt::format("chimera evaluate --from {} --data FILE --sequence {}\n", shell_word(model),
                            options.data.sequence);
}

std::string partition_line(const JobShape& job, PartitionRule rule) {
  const std::int64_t stages = std::ssize(job.partition);
  const bool is_chosen = rule == PartitionRule::Auto && job.partition != even_partition(job.model.layers, stages);
  if (stages == 1 || (!is_chosen && rule != PartitionRule::Balanced && rule != PartitionRule::Listed)) return "";
  return fmt::format("layers on the stages: {}{}\n", to_text(job.partition),
                     is_chosen ? " (faster than even by prediction; --partition even: equal numbers)" : "");
}

std::string learning_rate_line(const TrainOptions& options) {
  const LearningRate& rate = options.updates.learning_rate;
  return fmt::format("learning rate: {:g}, {} of warm-up, {}\n", rate.peak, counted(rate.warmup, "step"),
                     to_text(rate.shape));
}

std::string schedule_line(const std::optional<RunnerUp>& runner_up) {
  if (!runner_up) return "";
  const auto& [schedule, time, memory] = *runner_up;
  return fmt::format("  chosen by prediction; next: {}, {:+.1f} % time, {:+.1f} % memory (--schedule takes another)\n",
                     schedule, 100 * time, 100 * memory);
}

std::string describe(const Job& job) {
  const TrainOptions& options = job.options;
  std::string text = fmt::format("{}: {} parameters, {}, {} wide; {}\n", job.model.name, parameter_count(job.model),
                                 counted(job.model.layers, "layer"), job.model.hidden, to_text(options.numbers.dtype));
  const std::string ranks = job.num_ranks() == 1 ? "worker" : to_text(options.device.transport);
  text += fmt::format("schedule {}: {} on {} {}{}, {} of {} x {} tokens a step\n", job.run.schedule.name,
                      counted(job.run.schedule.stages, "stage"), job.num_ranks(), ranks, groups_in_words(job),
                      counted(job.run.micro_batches(), "micro-batch"), job.run.samples_per_op(), options.data.sequence);
  text += schedule_line(job.runner_up);
  if (uses_gpu(options) && options.device.transport == TransportKind::Processes &&
      job.local_ranks() < accelerator().num_devices()) {
    text += fmt::format("uses {} of {} GPUs; more --stages or --data-parallel use the others\n", job.local_ranks(),
                        accelerator().num_devices());
  }
  if (job.data.corpus) text += data_line(*job.data.corpus) + "\n";
  if (job.data.corpus && !job.data.corpus->opened.is_plain_text)
    text += fmt::format("data: {}\n", job.data.corpus->opened.description);
  if (job.first_step > 0) text += fmt::format("continues from {}\n", job.options.resume.from);
  text += learning_rate_line(options);
  if (options.checkpoint.folder.empty() && options.exported.folder.empty())
    text += "the trained model will not be kept; --checkpoint or --export keeps it\n";
  text += partition_line(job, options.schedule.partition.rule);
  if (job.run.ranks.workers > 1 && fits_a_page(job.run.schedule))
    text += fmt::format("\n{}\n", to_text(job.run.schedule, slot_timeline(job.run.schedule)));
  return text;
}

}  // namespace chimera
