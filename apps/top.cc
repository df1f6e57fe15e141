#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <thread>

#include "commands.h"
#include "core/reject.h"
#include "core/terminal.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "telemetry/top_view.h"

namespace chimera::apps {
namespace {

struct TopArguments {
  std::string run;
  bool once = false;
  double interval = 1;
  Format format = Format::Text;
};

std::atomic<bool> is_over = false;
void end_view(int) { is_over = true; }

std::size_t view_columns() {
  constexpr std::size_t kUsual = 100;
  const std::size_t columns = terminal_columns(STDOUT_FILENO);
  return columns == 0 ? kUsual : columns;
}

/// Returns the part of the interval in which to observe the ranks.
std::chrono::milliseconds watch_time(double interval) {
  constexpr double kLongest = 500;
  // Half of the interval, in milliseconds.
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(interval * 500, kLongest)));
}

void show_live(const TopArguments& options) {
  // sleep_until() below goes on after a signal, so the view ends with the interval, between two pictures.
  std::signal(SIGINT, end_view);
  std::signal(SIGTERM, end_view);
  const auto interval = std::chrono::duration<double>(options.interval);
  while (!is_over) {
    // The interval begins with the view, because watching the ranks takes a part of it.
    const auto next = std::chrono::steady_clock::now() + interval;
    const std::string view = to_text(observe_run(options.run, watch_time(options.interval)), view_columns());
    const std::string note = fmt::format("\nevery {} s; Ctrl-C ends this view, not the run\n", options.interval);
    // Home and clear, then the whole view at once, so that the terminal does not flicker.
    std::cout << "\033[H\033[2J" << clip_lines(view + note, view_columns()) << std::flush;
    std::this_thread::sleep_until(next);
  }
}

}  // namespace

void add_top(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand("top", "Watch a run: steps, loss, speed, waiting ranks, time left");
  command->footer(
      "Examples:\n"
      "  chimera top run   # the folder of `chimera train --checkpoint run`\n"
      "  chimera top metrics.jsonl --interval 5\n"
      "  chimera top run --once\n"
      "  chimera top run --format json\n"
      "\nSteps come from the metrics file, which may be on a shared file system. If the run is on this machine, a "
      "table shows the current instruction and the waiting time of each rank; a straggler is a rank whose ops "
      "take longer than the same ops of other ranks, by the run's flight records. The view updates until Ctrl-C on a "
      "terminal, and is printed once otherwise.\n"
      "\nMore: docs/metrics.md");
  auto options = std::make_shared<TopArguments>();
  command->add_option("RUN", options->run, "folder of a run, or its metrics file")->required();
  begin_group(*command, heading::kOutput);
  command->add_flag("--once", options->once, "print the view once");
  const auto* interval =
      add_number(*command, "--interval", options->interval, "seconds between views (default 1)", 0.1);
  auto* format = add_format(*command, options->format, {Format::Text, Format::Json});
  command->callback([options, format, interval] {
    if ((options->once || format->count() > 0) && interval->count() > 0)
      reject("--interval is for a view that updates; leave out --interval, or --once and --format");
    // In a pipe or a file, a view that overwrites itself would be a mess.
    const bool lives = !options->once && format->count() == 0 && supports_escapes(STDOUT_FILENO);
    if (lives) return show_live(*options);
    const TopView view = observe_run(options->run, watch_time(options->interval));
    write_output("", options->format == Format::Json ? to_json(view) : to_text(view, view_columns()));
  });
}

}  // namespace chimera::apps
