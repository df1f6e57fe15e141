#include "launch/local/launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/console.h"
#include "core/core_use.h"
#include "core/files.h"
#include "core/reject.h"
#include "launch/local/place.h"
#include "launch/local/restarts.h"

namespace chimera {
namespace {

std::string path_of(const FileDescriptor& file) {
  return file.get() < 0 ? "" : fmt::format("/proc/self/fd/{}", file.get());
}

/// Memory files and pipes have no names, so the kernel frees them with the last process, also after SIGKILL. Each
/// attempt has its own: a rank of an earlier attempt that still ends cannot disturb it.
RankChannels open_channels(const LaunchPlan& plan) {
  RankChannels channels{.store = make_memory_file("chimera-store", 0),
                        .input = {},
                        .reports = open_pipe(/*nonblocking=*/true),
                        .progress = ProgressPage(plan.ranks, plan.last_step)};
  if (!plan.input.empty()) {
    channels.input = make_memory_file("chimera-input", 0);
    if (const int error = write_all(channels.input.get(), plan.input))
      throw Error("cannot write a file in memory: " + system_message(error));
  }
  return channels;
}

/// A restarted or replaced rank must not meet fault points of its predecessor again, so it gets the number of its
/// start.
Command rank_command(const LaunchPlan& plan, int restarts, const RankChannels& channels, int rank,
                     std::int64_t generation, int orders) {
  Command command{.executable = plan.executable,
                  .arguments = plan.arguments,
                  .environment = {{kRankVariable, std::to_string(rank)},
                                  {kWorldSizeVariable, std::to_string(plan.ranks)},
                                  {kStoreVariable, path_of(channels.store)},
                                  {kInputVariable, path_of(channels.input)},
                                  {kStartVariable, std::to_string(restarts + generation)},
                                  {kLauncherVariable, std::to_string(::getpid())}},
                  .descriptors = {channels.store.get()},
                  .entry = plan.entry};
  const std::vector<std::string>& more = plan.replacement_arguments;
  if (generation > 0) command.arguments.insert(command.arguments.end(), more.begin(), more.end());
  if (channels.input.get() >= 0) command.descriptors.push_back(channels.input.get());
  command.pass(kReportVariable, channels.reports.write.get());
  command.pass(kProgressVariable, channels.progress.descriptor());
  if (orders >= 0) {
    command.pass(kOrdersVariable, orders);
    command.environment[kGenerationVariable] = std::to_string(generation);
  }
  return command;
}

StartOutcome run_start(const LaunchPlan& plan, int restarts, SignalInbox& signals) {
  RankChannels channels = open_channels(plan);
  const auto begin = sample_core_use();
  try_flight(plan.flight_folder, [&] { begin_flight(plan.flight_folder, plan.flight_job); });
  StartOutcome outcome = supervise(channels, signals, plan, [&](int rank, std::int64_t generation, int orders) {
    return ChildProcess(rank_command(plan, restarts, channels, rank, generation, orders));
  });
  try_flight(plan.flight_folder, [&] {
    const bool is_well = !outcome.verdict || outcome.exit_code == static_cast<int>(kSavedExit);
    if (is_well) return remove_flight(plan.flight_folder);
    outcome.verdict->others_share = load_of_others_since(begin);  // All ranks have been waited for
    if (const auto end = sample_core_use(); begin && end)
      outcome.verdict->busiest_other = busiest_other(*begin, *end, ::getpid());
    write_verdict(plan.flight_folder, *outcome.verdict);
  });
  return outcome;
}

int run_with_restarts(const LaunchPlan& plan) {
  SignalInbox signals;  // before the first rank, so that no signal is missed
  Restarts restarts(plan.most_restarts);
  LaunchPlan attempt = plan;
  // The first attempt takes its hosts as given, so it cannot fail here.
  if (plan.place) static_cast<void>(plan.place(attempt, signals));
  while (true) {
    const StartOutcome outcome = run_start(attempt, restarts.done(), signals);
    // A restart would end with the same usage error.
    if (!outcome.failed_step || outcome.exit_code == static_cast<int>(ExitCode::Usage)) return outcome.exit_code;
    // The user has asked the job to save and end, so it is not restarted.
    if (outcome.asked_to_save && plan.most_restarts > 0) return static_cast<int>(kSavedExit);
    const Restarts::Advice advice = restarts.after_failure(*outcome.failed_step);
    if (!advice.why_not.empty()) print_message(advice.why_not);
    if (!advice.again) return outcome.exit_code;
    if (const auto code = wait_between_starts(signals, advice.pause)) return *code;
    const NextStart next = plan.next_start(*outcome.failed_step);
    // From the original plan, so that the arguments of earlier restarts do not add up.
    attempt = plan;
    attempt.arguments.insert(attempt.arguments.end(), next.arguments.begin(), next.arguments.end());
    const bool is_placed = !plan.place || plan.place(attempt, signals);
    // To place the ranks can take minutes, in which a signal may have come.
    if (const auto code = wait_between_starts(signals, std::chrono::seconds(0))) return *code;
    if (!is_placed) return outcome.exit_code;
    print_message("restart {} of {}: {}", restarts.done(), plan.most_restarts, next.description);
  }
}

}  // namespace

int launch(const LaunchPlan& plan) {
  // Orders of recoveries name ranks in a RankSet, which has kMaxRanksOfHost bits.
  const bool may_be_many = plan.place && plan.most_recoveries == 0;
  if (plan.ranks < 1 || (plan.ranks > kMaxRanksOfHost && !may_be_many))
    reject("cannot start {} ranks; expected 1 .. {}", plan.ranks, kMaxRanksOfHost);
  const int exit_code = run_with_restarts(plan);
  messages().drain(kDrainAfterFailure);
  return exit_code;
}

}  // namespace chimera
