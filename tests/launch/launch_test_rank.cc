// Started by hand, this program is a launcher; its ranks are the same program.
// launch_test_rank RANKS ACTION...: rank r runs action r, or `ok` if there are fewer actions. Environment:
//   LAUNCH_TEST_HANG_MS, _INPUT, _ROOT, _RESTARTS   the plan's `hang`, `input`, `root`, `most_restarts`
//   LAUNCH_TEST_RECOVERIES   the plan's `most_recoveries`; all ranks hold the same state
//   LAUNCH_TEST_FORKS        ranks are forked
//   LAUNCH_TEST_SAVES        ranks save

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "launch/flight/hang.h"
#include "launch/local/launcher.h"
#include "launch/local/process.h"
#include "launch/local/rank.h"
#include "launch/local/recovery.h"

namespace chimera {
namespace {

void print_line(const std::string& line) {
  const std::string text = line + "\n";
  check_system(static_cast<int>(::write(STDOUT_FILENO, text.data(), text.size())), "print");
}

/// Works like c10d's FileStore: opens and locks the file for every operation.
class LockedStore {
 public:
  explicit LockedStore(const std::string& path)
      : file_(check_system(::open(path.c_str(), O_RDWR | O_CREAT, 0644), "open " + path)) {
    check_system(::flock(file_.get(), LOCK_EX), "lock " + path);
  }
  [[nodiscard]] std::string read() const {
    std::string text(static_cast<std::size_t>(::lseek(file_.get(), 0, SEEK_END)), '\0');
    check_system(static_cast<int>(::pread(file_.get(), text.data(), text.size(), 0)), "read");
    return text;
  }
  void append(const std::string& text) const {
    ::lseek(file_.get(), 0, SEEK_END);
    check_system(static_cast<int>(::write(file_.get(), text.data(), text.size())), "append");
  }

 private:
  FileDescriptor file_;
};

std::vector<std::string> store_words(const RankEnvironment& self) {
  std::istringstream text(LockedStore(self.rendezvous.file).read());
  return {std::istream_iterator<std::string>(text), {}};
}

/// Waits until `count` ranks have written to the store.
std::vector<std::string> await_store_words(const RankEnvironment& self, std::size_t count) {
  std::vector<std::string> words;
  while ((words = store_words(self)).size() < count) ::sched_yield();
  return words;
}

[[noreturn]] void wait_forever() {
  print_line("ready");
  while (true) ::pause();
}

/// Returns when the launcher has reaped `process`, one of its ranks.
void await_reaping(pid_t process) {
  while (::kill(process, 0) == 0) ::sched_yield();
}

int count_descriptors() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  // without the descriptor that reads the directory
  return static_cast<int>(std::distance(begin(entries), end(entries))) - 1;
}

using Action = std::function<int(const RankEnvironment&)>;

int victim(const RankEnvironment& self) {
  LockedStore(self.rendezvous.file).append(fmt::format("{}\n", ::getpid()));
  report_failure({.op = "0F2", .message = "connection closed by peer", .own_cause = false});
  return static_cast<int>(ExitCode::PeerLost);
}

int fail_after_the_victims(const RankEnvironment& self) {
  const auto victims = await_store_words(self, static_cast<std::size_t>(self.world_size) - 1);
  for (const std::string& pid : victims) await_reaping(std::stoi(pid));
  report_failure({.op = "1B3", .message = "out of memory"});
  return static_cast<int>(ExitCode::No);
}

int meet_in_the_store(const RankEnvironment& self) {
  LockedStore(self.rendezvous.file).append(fmt::format("rank{}\n", self.rank));
  await_store_words(self, static_cast<std::size_t>(self.world_size));
  return 0;
}

int report_and_hang(const RankEnvironment&) {
  report_failure({.op = "1B3", .message = "not a number"});
  wait_forever();
}

Instruction compute(std::int64_t stage, std::int64_t micro_batch) {
  return {InstructionKind::Compute,
          {OpKind::Forward, ReplicaId(0), StageId(stage), MicroBatchId(micro_batch)},
          WorkerId(0)};
}

[[noreturn]] void work_forever() {
  print_line("ready");
  for (std::int64_t step = 1;; ++step) {
    note_progress({RankProgress::Phase::Steps, step, compute(0, step % 4)});
    ::sched_yield();
  }
}

/// Waits in step 1 for a message that worker 0 does not send.
[[noreturn]] void wait_for_message() {
  note_progress({RankProgress::Phase::Steps, 1, {InstructionKind::WaitReceive, compute(0, 2).op, WorkerId(0)}});
  wait_forever();
}

[[noreturn]] void compute_forever() {
  note_progress({RankProgress::Phase::Steps, 1, compute(1, 3)});
  wait_forever();
}

[[noreturn]] void stop_itself() {
  note_progress({RankProgress::Phase::Steps, 1, compute(1, 3)});
  ::raise(SIGSTOP);
  wait_forever();
}

/// Starts the first step, with save requests blocked so that the rank can wait for them.
sigset_t await_requests() {
  sigset_t requests;
  ::sigemptyset(&requests);
  ::sigaddset(&requests, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &requests, nullptr);
  note_progress({RankProgress::Phase::Steps, 1, compute(1, 3)});
  print_line("ready");
  return requests;
}

int save_when_asked(const RankEnvironment&) {
  const sigset_t requests = await_requests();
  int number = 0;
  ::sigwait(&requests, &number);
  return static_cast<int>(kSavedExit);
}

/// Ignores a request to save and requests the end of the job until the launcher ends it.
int insist_on_the_end(const RankEnvironment&) {
  const sigset_t requests = await_requests();
  int number = 0;
  ::sigwait(&requests, &number);
  while (true) {
    ::kill(::getppid(), SIGTERM);
    ::sched_yield();
  }
}

/// Fails in the first attempt of the job.
int fail_once(const RankEnvironment&) {
  note_progress({RankProgress::Phase::Steps, 1, compute(1, 3)});
  if (std::getenv("CHIMERA_START") != std::string("0")) return 0;
  report_failure({.op = "1B3", .message = "out of memory"});
  return static_cast<int>(ExitCode::No);
}

/// Joins a rendezvous at a store, and prints the epoch.
void meet(const RankEnvironment& self, const std::string& store) {
  RankEnvironment there = self;
  there.rendezvous = file_rendezvous(store);
  LockedStore(store).append("here\n");
  await_store_words(there, static_cast<std::size_t>(self.world_size));
}

/// Trains until another rank is lost, and exits with success once all ranks have resumed. In its first epoch it calls
/// `lose_itself` once all ranks train. If it `waits_in_vain`, it does not come to the first rendezvous after the loss.
int outlive(const RankEnvironment& self, const std::function<void()>& lose_itself, bool waits_in_vain = false) {
  std::atomic<bool> broken = false;
  RecoveryLink link(self.rank, self.generation, FileDescriptor(*self.orders), [&] {
    broken = true;
    broken.notify_all();
  });
  if (!link.is_recovering()) {
    note_progress({RankProgress::Phase::Steps, 5, compute(0, 1)});
    meet(self, self.rendezvous.file);
    lose_itself();
    while (!broken) note_progress({RankProgress::Phase::Steps, 5, compute(0, 1)});
    if (!link.must_leave(std::chrono::milliseconds(0))) return static_cast<int>(ExitCode::No);
  }
  JoinedGeneration generation = link.rejoin([&] { broken = false; });
  if (waits_in_vain) {
    note_progress({RankProgress::Phase::Joining});
    broken.wait(false);
    generation = link.rejoin([&] { broken = false; });
  }
  meet(self, fmt::format("/proc/self/fd/{}", generation.store.get()));
  print_line(fmt::format("rank {} in epoch 1", self.rank));
  note_progress({RankProgress::Phase::Steps, 5, compute(0, 1)});
  link.note_resumed(4);
  return 0;
}

/// Computes for longer than a rank may wait at startup, without progress. The margin is small: on a busy machine only a
/// kWorkFactor-th of the computing time counts.
int compute_at_start(const RankEnvironment&) {
  const std::clock_t begin = std::clock();
  const auto patience = HangWatch::kStartUpFactor * std::stod(std::getenv("LAUNCH_TEST_HANG_MS")) / 1000;
  while (static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 1.25 * patience) {
  }
  return 0;
}

/// Imitates the kernel's out-of-memory killer.
int run_out_of_memory(const RankEnvironment&) {
  std::ofstream(std::string(std::getenv("LAUNCH_TEST_ROOT")) + "/sys/fs/cgroup/job/memory.events") << "oom_kill 4\n";
  return ::raise(SIGKILL);
}

/// A forked rank inherits the launcher's value.
bool has_launched = false;

/// A global variable of the launcher. In jobs of "leave-globals-alone" its destructor prints a line.
struct LaunchersOwn {
  bool says_so = false;
  ~LaunchersOwn() {
    if (says_so) std::fputs("destroyed\n", stderr);
  }
} launchers_own;

const std::map<std::string, Action> kActions = {
    {"ok", [](const RankEnvironment&) { return 0; }},
    {"leave-globals-alone", [](const RankEnvironment&) { return 0; }},
    {"wait", [](const RankEnvironment&) -> int { wait_forever(); }},
    {"ignore-term",
     [](const RankEnvironment&) -> int {
       ::signal(SIGTERM, SIG_IGN);
       wait_forever();
     }},
    {"interrupt-itself", [](const RankEnvironment&) { return ::raise(SIGINT); }},
    {"exit-7", [](const RankEnvironment&) { return 7; }},
    {"abort", [](const RankEnvironment&) -> int { std::abort(); }},
    {"fail",
     [](const RankEnvironment&) {
       report_failure({.op = "1B3", .message = "out of memory"});
       return static_cast<int>(ExitCode::No);
     }},
    {"refuse", [](const RankEnvironment&) -> int { throw ConfigError("4 stages of 3 layers"); }},
    {"peer-lost", [](const RankEnvironment&) { return static_cast<int>(ExitCode::PeerLost); }},
    {"victim", victim},
    {"fail-after-the-victims", fail_after_the_victims},
    {"report-and-hang", report_and_hang},
    {"meet-in-the-store", meet_in_the_store},
    {"save-when-asked", save_when_asked},
    {"insist-on-the-end", insist_on_the_end},
    {"fail-once", fail_once},
    {"work", [](const RankEnvironment&) -> int { work_forever(); }},
    {"wait-for-message", [](const RankEnvironment&) -> int { wait_for_message(); }},
    {"stop-itself", [](const RankEnvironment&) -> int { stop_itself(); }},
    {"compute-at-start", compute_at_start},
    {"run-out-of-memory", run_out_of_memory},
    {"outlive", [](const RankEnvironment& self) { return outlive(self, [] {}); }},
    {"be-lost", [](const RankEnvironment& self) { return outlive(self, [] { ::raise(SIGKILL); }); }},
    {"outlive-deadlock",
     [](const RankEnvironment& self) {
       return outlive(
           self, [] {}, /*waits_in_vain=*/true);
     }},
    {"be-lost-in-deadlock",
     [](const RankEnvironment& self) {
       return outlive(
           self, [] { ::raise(SIGKILL); }, /*waits_in_vain=*/true);
     }},
    {"compute-forever", [](const RankEnvironment&) -> int { compute_forever(); }},
    {"count-descriptors",
     [](const RankEnvironment&) {
       print_line(fmt::format("{} descriptors", count_descriptors()));
       return 0;
     }},
    {"read-input",
     [](const RankEnvironment& self) {
       std::ifstream input(self.input_path);
       print_line(std::string(std::istreambuf_iterator<char>(input), {}));
       return 0;
     }},
    {"is-forked",
     [](const RankEnvironment&) {
       print_line(has_launched ? "forked" : "loaded");
       return 0;
     }},
    {"who-am-i",
     [](const RankEnvironment& self) {
       print_line(fmt::format("{} of {}", self.rank, self.world_size));
       return 0;
     }},
};

int run_main(int argc, char** argv);

int run(const std::vector<std::string>& arguments) {
  const auto self = rank_environment();
  if (!self) {
    const char* hang = std::getenv("LAUNCH_TEST_HANG_MS");
    const char* input = std::getenv("LAUNCH_TEST_INPUT");
    const char* root = std::getenv("LAUNCH_TEST_ROOT");
    const char* restarts = std::getenv("LAUNCH_TEST_RESTARTS");
    const char* recoveries = std::getenv("LAUNCH_TEST_RECOVERIES");
    RankGroups everybody(1);
    for (int rank = 0; rank < std::stoi(arguments.at(0)); ++rank) everybody.front().emplace_back(rank);
    has_launched = true;
    launchers_own.says_so = std::ranges::find(arguments, "leave-globals-alone") != arguments.end();
    return launch({.ranks = std::stoi(arguments.at(0)),
                   .arguments = arguments,
                   .input = input == nullptr ? "" : input,
                   .entry = std::getenv("LAUNCH_TEST_FORKS") == nullptr ? nullptr : run_main,
                   .hang = std::chrono::milliseconds(hang == nullptr ? 0 : std::stoi(hang)),
                   .saves = std::getenv("LAUNCH_TEST_SAVES") != nullptr,
                   .most_restarts = restarts == nullptr ? 0 : std::stoi(restarts),
                   .next_start =
                       [](std::int64_t) {
                         return NextStart{{"ok"}, "once more"};
                       },
                   .most_recoveries = recoveries == nullptr ? 0 : std::stoi(recoveries),
                   .copies = everybody,
                   .root = root == nullptr ? "/" : root});
  }
  const auto index = static_cast<std::size_t>(self->rank) + 1;
  return kActions.at(index < arguments.size() ? arguments[index] : "ok")(*self);
}

int run_main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const ConfigError& error) {
    report_failure({.message = error.what()});
    return static_cast<int>(ExitCode::Usage);
  } catch (const std::exception& error) {
    report_failure({.op = "start", .message = error.what()});
    return static_cast<int>(ExitCode::No);
  }
}

}  // namespace
}  // namespace chimera

int main(int argc, char** argv) { return chimera::run_main(argc, argv); }
