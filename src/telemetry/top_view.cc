#include "telemetry/top_view.h"

#include <fcntl.h>
#include <signal.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "core/counted.h"
#include "core/error.h"
#include "core/json.h"
#include "core/mapped.h"
#include "launch/flight/flight_record.h"
#include "render/panel.h"
#include "telemetry/speed_report.h"

namespace chimera {
namespace {

namespace fs = std::filesystem;

/// Returns the progress page among the open files of a process.
std::optional<ProgressPage> page_of(const fs::path& files) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(files, error)) {
    const std::string target = fs::read_symlink(entry.path(), error).string();
    // Ranks write their position to memory that the launcher has made under this name.
    if (!target.starts_with(std::string("/memfd:") + kProgressName)) continue;
    FileDescriptor page(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    if (page.get() < 0) continue;
    try {
      return ProgressPage(std::move(page), /*is_read_only=*/true);
    } catch (const Error&) {
      continue;  // written by another version of the program
    }
  }
  return std::nullopt;
}

bool writes_to(const fs::path& files, const fs::path& file) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(files, error)) {
    if (fs::read_symlink(entry.path(), error) != file) continue;
    // The link of a descriptor is writable if the file is open for writing. A reader, such as `tail -f`, is not the
    // run.
    if ((fs::symlink_status(entry.path(), error).permissions() & fs::perms::owner_write) != fs::perms::none)
      return true;
  }
  return false;
}

constexpr std::size_t kRecent = 20;  // steps in medians of rates and times

std::vector<double> recent(const RunHistory& run, double StepMetrics::*field, std::size_t count) {
  return mapped(std::span(run.steps).last(std::min(count, run.steps.size())), field);
}

/// Returns bars of eight heights; each shows the mean of consecutive values.
std::string sparkline(const std::vector<double>& values, std::size_t columns) {
  constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::vector<double> means;
  const std::size_t bars = std::min(columns, values.size());
  for (std::size_t b = 0; b < bars; ++b) {
    // Bars cover all values without gaps, in groups that differ by one value at most.
    const std::size_t first = b * values.size() / bars;
    const std::size_t end = (b + 1) * values.size() / bars;
    double sum = 0;
    for (std::size_t i = first; i < end; ++i) sum += values[i];
    means.push_back(sum / static_cast<double>(end - first));
  }
  // Skipped losses are not finite.
  std::erase_if(means, [](double mean) { return !std::isfinite(mean); });
  if (means.empty()) return "";
  const auto [least, most] = std::ranges::minmax(means);
  std::string line;
  for (const double mean : means) {
    const double height = most > least ? (mean - least) / (most - least) : 0;
    line += kBars[static_cast<std::size_t>(height * 7.0 + 0.5)];
  }
  return line;
}

std::string bar(double share, std::size_t columns) {
  const auto filled = static_cast<std::size_t>(std::lround(share * static_cast<double>(columns)));
  std::string text;
  for (std::size_t i = 0; i < columns; ++i) text += i < filled ? "█" : "·";
  return text;
}

/// The launcher knows the number of steps before the first checkpoint has the configuration.
std::optional<std::int64_t> planned_steps(const TopView& view) {
  return view.live_steps > 0 ? std::optional(view.live_steps) : planned_steps(view.run);
}

bool is_done(const TopView& view) {
  if (view.run.steps.empty()) return false;
  const auto planned = planned_steps(view);
  return planned && view.run.steps.back().step >= *planned;
}

const char* state_of(const TopView& view) {
  // A run without a process here may run on another host, whose processes are not visible.
  if (view.process) return "running";
  return is_done(view) ? "ended" : "unknown";
}

/// Returns the last ETA; of a live run, minus the time since then.
std::optional<double> seconds_left(const TopView& view) {
  if (view.run.steps.empty() || is_done(view)) return std::nullopt;
  const auto left = view.run.steps.back().seconds_left;
  if (!left) return std::nullopt;
  return std::max(0.0, *left - (view.process ? view.seconds_since_last : 0));
}

/// Returns the mean share of the ranks here; nullopt for a rank alone.
std::optional<double> waiting_share(const TopView& view) {
  double sum = 0;
  const auto here = std::ranges::count_if(view.ranks, &LiveRank::is_here);
  for (const LiveRank& rank : view.ranks) sum += rank.is_here ? rank.waiting : 0;
  return here < 2 ? std::nullopt : std::optional(sum / static_cast<double>(here));
}

std::string state_in_words(const TopView& view) {
  const std::string ago = duration_text(view.seconds_since_last) + " ago";
  if (view.process) return fmt::format("running here, process {}; last step {}", *view.process, ago);
  if (is_done(view)) return "ended; all steps are done, " + ago;
  return fmt::format("no process on this host writes it: it runs elsewhere, or has ended; last step {}", ago);
}

std::string steps_as_text(const TopView& view, std::size_t columns) {
  const RunHistory& run = view.run;
  if (run.steps.empty()) return "no step yet\n";
  const StepMetrics& last = run.steps.back();
  const auto planned = planned_steps(view);
  std::string text = fmt::format("step      {}", last.step);
  if (planned) {
    const double share = static_cast<double>(last.step) / static_cast<double>(*planned);
    text += fmt::format(" of {}   {} {:.0f} %", *planned, bar(std::min(share, 1.0), 24), 100 * share);
  }
  if (const auto left = seconds_left(view)) text += "   ETA " + duration_text(*left);
  text += fmt::format("\nloss      {:.4f}", last.loss);
  const auto losses = recent(run, &StepMetrics::loss, kRecent);
  text += fmt::format("   median of the last {} {:.4f}", counted(losses.size(), "step"), median_of(losses));
  for (auto step = run.steps.rbegin(); step != run.steps.rend(); ++step) {
    if (!step->validation_loss) continue;
    text += fmt::format("   validation {:.4f} (step {})", *step->validation_loss, step->step);
    break;
  }
  text += fmt::format("\n          {}\n", sparkline(recent(run, &StepMetrics::loss, run.steps.size()), columns - 12));
  const double seconds = median_of(recent(run, &StepMetrics::step_seconds, kRecent));
  text += fmt::format("speed     {:.0f} tokens/s   {:.3f} s a step",
                      median_of(recent(run, &StepMetrics::tokens_per_second, kRecent)), seconds);
  if (last.utilization) text += "   MFU " + mfu_text(*last.utilization);
  if (last.workers) text += fmt::format("   {} workers are left", *last.workers);
  text += fmt::format("\n          {}\n",
                      sparkline(recent(run, &StepMetrics::tokens_per_second, run.steps.size()), columns - 12));
  const auto hundred = std::span(run.steps).last(std::min<std::size_t>(run.steps.size(), 100));
  const auto slowest = std::ranges::max_element(hundred, {}, &StepMetrics::step_seconds);
  text += fmt::format("          slowest of the last {}: step {}, {:.3f} s, {:.1f} times the median\n", hundred.size(),
                      slowest->step, slowest->step_seconds, seconds > 0 ? slowest->step_seconds / seconds : 1);
  if (const auto changes = changes_of_order(run.steps); !changes.empty()) text += "order     " + changes.back() + "\n";
  if (last.used_memory_bytes) {
    text += fmt::format("memory    of one GPU: {} in use, tensors {} at most\n", bytes_text(*last.used_memory_bytes),
                        bytes_text(last.peak_memory_bytes));
  } else if (last.peak_memory_bytes > 0) {
    text += fmt::format("memory    {} at most in one process\n", bytes_text(last.peak_memory_bytes));
  }
  return text;
}

std::string ranks_as_text(const TopView& view) {
  if (view.ranks.empty()) return "";
  std::string text;
  if (const auto waiting = waiting_share(view))
    text += fmt::format("bubble    ranks wait for each other {:.0f} % of their time\n", 100 * *waiting);
  text += fmt::format("\n{:>4} {:>8} {:>8}  {:<28} {}\n", "rank", "process", "step", "does now", "waits for others");
  constexpr std::size_t kMaxRanks = 64;
  for (std::size_t r = 0; r < std::min(view.ranks.size(), kMaxRanks); ++r) {
    const LiveRank& rank = view.ranks[r];
    const auto number = [](std::int64_t value) { return value == 0 ? "-" : std::to_string(value); };
    text += fmt::format("{:>4} {:>8} {:>8}  ", r, number(rank.process), number(rank.step));
    text += rank.is_here
                ? fmt::format("{:<28} {} {:>3.0f} %{}\n", rank.doing.substr(0, 28), bar(rank.waiting, 10),
                              100 * rank.waiting,
                              std::ranges::count(view.stragglers, static_cast<int>(r)) == 0 ? "" : "  straggler")
                : rank.doing + "\n";
  }
  if (view.ranks.size() > kMaxRanks) text += fmt::format("     and {} more\n", view.ranks.size() - kMaxRanks);
  return text;
}

}  // namespace

std::optional<LiveRun> LiveRun::find(const std::string& metrics) {
  std::error_code error;
  const fs::path file = fs::canonical(metrics, error);
  if (error) return std::nullopt;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    // Only folders of processes have numbers for names.
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const fs::path files = entry.path() / "fd";
    if (writes_to(files, file)) return LiveRun(static_cast<pid_t>(std::stol(name)), page_of(files));
  }
  return std::nullopt;
}

std::vector<LiveRank> LiveRun::watch(std::chrono::milliseconds time) const {
  if (!page_) return {};
  const auto ranks = static_cast<std::size_t>(page_->ranks());
  std::vector<LiveRank> seen(ranks);
  std::int64_t looks = 0;
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (std::size_t r = 0; r < ranks; ++r) {
      const RankProgress progress = page_->last(static_cast<int>(r));
      // Before and after the steps, a rank has a phase instead of an instruction.
      const bool in_steps = progress.phase == RankProgress::Phase::Steps;
      seen[r].step = in_steps ? progress.step : 0;
      seen[r].doing = in_steps ? to_text(progress.instruction) : to_text(progress);
      if (waits_for_others(progress)) seen[r].waiting += 1;
    }
    ++looks;
    // Samples at random moments count instructions by their time. Ranks are not disturbed: they only write memory.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < end);
  for (std::size_t r = 0; r < ranks; ++r) {
    seen[r].waiting /= static_cast<double>(looks);
    seen[r].process = page_->process(static_cast<int>(r));
  }
  const bool has_processes = std::ranges::any_of(seen, [](const LiveRank& rank) { return rank.process != 0; });
  for (LiveRank& rank : seen) {
    // Ranks of a job on several hosts have pages of their hosts; a page of an older job has no process numbers at all.
    const bool is_elsewhere = has_processes && rank.process == 0;
    const bool is_lost = rank.process != 0 && ::kill(rank.process, 0) != 0 && errno == ESRCH;
    if (is_elsewhere || is_lost) rank = {.doing = is_lost ? "lost" : "not seen here", .is_here = false};
  }
  return seen;
}

/// Returns no ranks without records, or while the job replaces them.
std::vector<int> recorded_stragglers(const std::string& folder) {
  try {
    return has_flight(folder) ? stragglers_of(read_flight_folder(folder)) : std::vector<int>();
  } catch (const ConfigError&) {
    return {};
  }
}

TopView observe_run(const std::string& path, std::chrono::milliseconds watched) {
  TopView view{.run = read_run(path)};
  if (const auto live = LiveRun::find(view.run.metrics)) {
    view.process = live->process();
    view.ranks = live->watch(watched);
    view.live_steps = live->steps();
    view.stragglers = recorded_stragglers(fs::path(view.run.metrics).parent_path().string());
    view.run = read_run(path);  // includes steps done meanwhile
  }
  std::error_code error;
  // The metrics have no clock times, but each step writes a line when it ends.
  const auto written = std::filesystem::last_write_time(view.run.metrics, error);
  const auto age = std::filesystem::file_time_type::clock::now() - written;
  if (!error) view.seconds_since_last = std::max(0.0, std::chrono::duration<double>(age).count());
  return view;
}

std::string to_text(const TopView& view, std::size_t columns) {
  return fmt::format("{}\n{}\n\n", view.run.name, state_in_words(view)) +
         steps_as_text(view, std::max<std::size_t>(columns, 16)) + ranks_as_text(view);
}

std::string to_json(const TopView& view) {
  using OrderedJson = nlohmann::ordered_json;
  const auto or_null = [](const auto& value) { return value ? OrderedJson(*value) : OrderedJson(); };
  OrderedJson json = {{"run", view.run.name},
                      {"metrics", view.run.metrics},
                      {"state", state_of(view)},
                      {"process", or_null(view.process)},
                      {"steps", or_null(planned_steps(view))},
                      {"seconds_since_last_step", view.seconds_since_last},
                      {"eta_seconds", or_null(seconds_left(view))},
                      {"waiting_share", or_null(waiting_share(view))}};
  const bool has_steps = !view.run.steps.empty();
  json["step"] = has_steps ? view.run.steps.back().step : 0;
  if (has_steps) {
    const StepMetrics& last = view.run.steps.back();
    json["loss"] = last.loss;
    json["workers"] = or_null(last.workers);
    json["order_changes"] = changes_of_order(view.run.steps);
    json["tokens_per_second"] = median_of(recent(view.run, &StepMetrics::tokens_per_second, kRecent));
    json["step_seconds"] = median_of(recent(view.run, &StepMetrics::step_seconds, kRecent));
    json["peak_memory_bytes"] = last.peak_memory_bytes;
    if (last.used_memory_bytes) json["used_memory_bytes"] = *last.used_memory_bytes;
  }
  json["ranks"] = OrderedJson::array();
  for (const LiveRank& rank : view.ranks) {
    json["ranks"].push_back({{"step", rank.step},
                             {"doing", rank.doing},
                             {"waiting", rank.is_here ? OrderedJson(rank.waiting) : OrderedJson()},
                             {"process", rank.process == 0 ? OrderedJson() : OrderedJson(rank.process)}});
  }
  json["stragglers"] = view.stragglers;
  return json_report(json);
}

}  // namespace chimera
