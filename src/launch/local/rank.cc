#include "launch/local/rank.h"

#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "core/choices.h"
#include "core/console.h"
#include "core/fault_point.h"
#include "core/file_descriptor.h"
#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"
#include "core/signals.h"

namespace chimera {
namespace {

std::string required_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) reject("{} is set but {} is not; unset it to start a job of its own", kLauncherVariable, name);
  return value;
}

int required_number(const char* name) {
  const std::string text = required_variable(name);
  const auto number = parse_number<int>(text);
  if (!number || *number < 0) reject("{} is '{}'; expected a number, as the launcher sets it", name, text);
  return *number;
}

/// Makes the kernel kill this process when the launcher dies.
void die_with_launcher(pid_t launcher) {
  // The signal comes when the thread that has started this process ends. The launcher of chimera starts ranks from its
  // main thread; other launchers may not, see end_with_parent().
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before the call above; then the kernel sends nothing.
  if (::getppid() != launcher) ::_exit(static_cast<int>(ExitCode::PeerLost));
}

/// Ends this rank when its parent dies. PR_SET_PDEATHSIG is unsuitable: it refers to the parent's thread.
void end_with_parent(int rank) {
  const pid_t parent = ::getppid();
  if (parent == 0) return;  // first process of a container, which ends with it
  const auto end = [rank] {
    print_message("rank {} ends: the process that started it has ended", rank);
    messages().drain(kDrainAfterFailure);
    ::_exit(static_cast<int>(ExitCode::PeerLost));
  };
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, parent, 0U));  // never closed
  if (::getppid() != parent) end();
  if (process < 0) return;  // the kernel has no pidfds
  const SignalBlocker none;
  std::thread([process, end] {
    pollfd ended{process, POLLIN, 0};
    while (::poll(&ended, 1, -1) <= 0) {
    }
    end();
  }).detach();
}

/// Ignores Ctrl-C. The launcher started this process with SIGINT blocked.
void leave_interrupts_to_launcher() {
  ::signal(SIGINT, SIG_IGN);
  const sigset_t interrupt = signal_set({SIGINT});
  ::pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
}

/// Keeps the descriptors of the launcher from programs that this rank may start. Kernels before 5.11 refuse it.
void close_descriptors_on_exec() { ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC); }

// Set in a rank of another launcher. Failures are reported from many places, which know nothing of launchers.
std::optional<RankPlace> own_place;

/// Writes the message for torchrun, which shows the earliest failure.
void write_error_file(const std::string& path, const std::string& message) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  // The format of torch.distributed.elastic.multiprocessing.errors.
  const nlohmann::json error = {
      {"message",
       {{"message", message}, {"extraInfo", {{"py_callstack", message}, {"timestamp", std::to_string(seconds)}}}}}};
  try {
    write_whole(path, json_text(error));
  } catch (const Error&) {  // stderr has the message, too
  }
}

/// Ignores errors: without the launcher, the kernel ends this process.
void send_to_launcher(const std::string& line) {
  [[maybe_unused]] const ssize_t written = ::write(required_number(kReportVariable), line.data(), line.size());
}

/// Delay before a rank reports a lost peer, so that the culprit or the heartbeats report first.
constexpr std::chrono::milliseconds kGraceAmongHosts{1500};

void print_failure(const FailureReport& report) {
  if (!report.own_cause) std::this_thread::sleep_for(kGraceAmongHosts);
  const std::string message = report.own_cause
                                  ? describe_failure(report.rank, {.report = report, .ending = {}})
                                  : fmt::format("rank {} ended at {}: {}", report.rank, report.op, report.message);
  print_message(message);
  messages().drain(kDrainAfterFailure);
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path != nullptr && *path != '\0' && report.own_cause) write_error_file(path, message);
}

}  // namespace

// The order matters: first this process is tied to its launcher, so that nothing below can outlive it, then interrupts
// are left to the launcher, and only then variables are judged, whose errors the launcher can already report.
std::optional<RankEnvironment> rank_environment() {
  if (std::getenv(kLauncherVariable) == nullptr) return std::nullopt;
  die_with_launcher(required_number(kLauncherVariable));
  leave_interrupts_to_launcher();
  ::signal(SIGPIPE, SIG_IGN);
  RankEnvironment self{.rank = required_number(kRankVariable),
                       .world_size = required_number(kWorldSizeVariable),
                       .rendezvous = file_rendezvous(required_variable(kStoreVariable)),
                       .input_path = required_variable(kInputVariable)};
  if (self.rank >= self.world_size)
    reject("{} is {}; expected less than {} = {}", kRankVariable, self.rank, kWorldSizeVariable, self.world_size);
  close_descriptors_on_exec();
  if (self.rendezvous.file.empty()) {  // An agent names a server
    self.remote = RankPlace{.rank = self.rank,
                            .world_size = self.world_size,
                            .local_rank = required_number(kLocalRankVariable),
                            .local_size = required_number(kLocalSizeVariable)};
    self.rendezvous = rendezvous_point(*self.remote, own_variables());
  }
  if (std::getenv(kOrdersVariable) != nullptr) {
    self.orders = required_number(kOrdersVariable);
    self.generation = required_number(kGenerationVariable);
  }
  set_process_progress_page(ProgressPage(FileDescriptor(required_number(kProgressVariable))), self.rank);
  fault_rank() = self.rank;
  fault_point("start");
  return self;
}

// A user who sets CHIMERA_RANK by hand may start ranks from scripts that end, so only launchers are watched.
RankEnvironment join_external_launcher(const RankPlace& place) {
  ::signal(SIGPIPE, SIG_IGN);
  if (place.launcher != LauncherKind::Variables) end_with_parent(place.rank);
  own_place = place;
  RankEnvironment self{.rank = place.rank,
                       .world_size = place.world_size,
                       .rendezvous = rendezvous_point(place, own_variables()),
                       .input_path = "",
                       .placed = true};
  if (!self.rendezvous.file.empty())
    self.rendezvous_file = std::make_shared<const RendezvousFile>(self.rendezvous.file, self.rank == 0);
  fault_rank() = self.rank;
  fault_point("start");
  return self;
}

void report_failure(FailureReport report) {
  if (!own_place && std::getenv(kLauncherVariable) == nullptr) return;
  report.rank = own_place ? own_place->rank : required_number(kRankVariable);
  if (own_place)
    print_failure(report);
  else
    send_to_launcher(to_line(report));
}

void note_recovery(const RecoveryNote& note) { send_to_launcher(to_line(note)); }

}  // namespace chimera
