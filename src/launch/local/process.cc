#include "launch/local/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "core/console.h"
#include "core/mapped.h"
#include "core/signals.h"

// A child starts in one of two ways. spawn() runs an executable; SpawnPlan lists what the kernel changes before exec.
// fork_entry() instead copies this process, and run_entry() undoes by hand what an exec would have undone, so that a
// rank starts in the same state either way. From then on only the pidfd names the child.

namespace chimera {
namespace {

/// What posix_spawn() does in the child before exec: descriptors, and signals that the launcher has blocked or ignored.
class SpawnPlan {
 public:
  explicit SpawnPlan(const Command& command) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    // Copying a descriptor onto itself clears close-on-exec.
    for (const int fd : command.descriptors) ::posix_spawn_file_actions_adddup2(&actions_, fd, fd);
    copy(command.input, STDIN_FILENO);
    copy(command.output, STDOUT_FILENO);
    copy(command.errors, STDERR_FILENO);
    // SIGINT stays blocked until the rank ignores it (rank_environment() in rank.cc), so that Ctrl-C cannot end a rank
    // in between. All signals that the launcher has blocked for itself become unblocked.
    const sigset_t blocked = signal_set({SIGINT});
    const sigset_t defaults = signal_set({SIGINT, SIGTERM, SIGCHLD});
    ::posix_spawnattr_setsigmask(&attributes_, &blocked);
    ::posix_spawnattr_setsigdefault(&attributes_, &defaults);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  SpawnPlan& operator=(SpawnPlan&&) = delete;
  ~SpawnPlan() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }

  [[nodiscard]] const posix_spawn_file_actions_t* actions() const { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  void copy(int fd, int standard) {
    if (fd >= 0) ::posix_spawn_file_actions_adddup2(&actions_, fd, standard);
  }

  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

std::vector<std::string> argv_of(const Command& command) {
  std::vector<std::string> arguments = {command.executable};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  return arguments;
}

std::vector<char*> c_array(std::vector<std::string>& strings) {
  auto pointers = mapped(strings, [](std::string& string) { return string.data(); });
  pointers.push_back(nullptr);
  return pointers;
}

pid_t spawn(const Command& command) {
  const SpawnPlan plan(command);
  std::vector<std::string> arguments = argv_of(command);
  Variables variables = command.environment;
  variables.merge(own_variables());  // keeps the values of the command
  auto environment = mapped(variables, [](const auto& each) { return each.first + "=" + each.second; });
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, command.executable.c_str(), plan.actions(), plan.attributes(),
                                   c_array(arguments).data(), c_array(environment).data());
  if (error != 0) throw Error("cannot start " + command.executable + ": " + system_message(error));
  return pid;
}

/// Resets signals as exec does; also gives SIGINT, SIGTERM and SIGCHLD default actions, and blocks SIGINT.
void take_signals_as_after_exec() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    const bool ignored = ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!ignored || number == SIGINT || number == SIGTERM || number == SIGCHLD) ::signal(number, SIG_DFL);
  }
  const sigset_t interrupt = signal_set({SIGINT});
  ::sigprocmask(SIG_SETMASK, &interrupt, nullptr);
}

/// Closes descriptors as exec does, except `kept`.
void close_descriptors_but(const std::vector<int>& kept) {
  // Collects first: the iterator reads the folder through a descriptor of its own, which must not be closed under it.
  std::vector<int> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    open.push_back(std::stoi(entry.path().filename().string()));
  for (const int fd : open) {
    const int flags = ::fcntl(fd, F_GETFD);  // fails for the iterator's own descriptor, already closed
    if (flags >= 0 && (flags & FD_CLOEXEC) != 0 && std::ranges::find(kept, fd) == kept.end()) ::close(fd);
  }
}

/// An exception ends the process: it must not unwind into the launcher's code. Global variables are not destroyed,
/// because the launcher still uses their files.
[[noreturn]] void run_entry(const Command& command) noexcept {
  take_signals_as_after_exec();
  close_descriptors_but(command.descriptors);
  restart_consoles();
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> arguments = argv_of(command);
  const auto argc = static_cast<int>(arguments.size());
  exit_now(command.entry(argc, c_array(arguments).data()), kDrainAfterFailure);
}

/// A fork shares the memory of the loaded libraries with the launcher, and saves the rank their start-up of seconds.
pid_t fork_entry(const Command& command) {
  std::cout.flush();  // otherwise buffered output would appear twice
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw Error("cannot start a rank: " + system_message(errno));
  if (pid == 0) run_entry(command);
  return pid;
}

}  // namespace

Variables own_variables() {
  Variables variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

// The end of a pipe and an endless line both end the reader: a rank that writes without line ends must not fill the
// launcher's memory.
bool LineReader::read() {
  std::array<char, 4096> buffer{};
  const ssize_t size = ::read(descriptor_, buffer.data(), buffer.size());
  if (size > 0 && text_.size() < kLongestLine)
    text_.append(buffer.data(), static_cast<std::size_t>(size));
  else if (size >= 0 || (errno != EINTR && errno != EAGAIN))
    has_ended_ = true;
  return size > 0;
}

std::optional<std::string> LineReader::next() {
  const auto end = text_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

PipeEnds open_pipe(bool nonblocking) {
  std::array<int, 2> ends{};
  check_system(::pipe2(ends.data(), O_CLOEXEC), "create a pipe");
  PipeEnds pipe{.read = FileDescriptor(ends[0]), .write = FileDescriptor(ends[1])};
  if (nonblocking) check_system(::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK), "set up a pipe");
  return pipe;
}

std::string describe_signal(int number) {
  const char* name = ::sigdescr_np(number);
  return fmt::format("signal {} ({})", number, name == nullptr ? "unknown signal" : name);
}

// Signals stay blocked in this thread, so they are read from the descriptor and run no handler. Without the default
// action of SIGCHLD, an inherited SIG_IGN would let the kernel reap children before their exit status is read.
SignalInbox::SignalInbox() {
  sigset_t signals = signal_set({SIGINT, SIGTERM, SIGUSR1, SIGUSR2});
  struct sigaction hang_up_action {};
  ::sigaction(SIGHUP, nullptr, &hang_up_action);
  if (hang_up_action.sa_handler != SIG_IGN) ::sigaddset(&signals, SIGHUP);
  fd_ = FileDescriptor(check_system(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK), "receive signals"));
  ::pthread_sigmask(SIG_BLOCK, &signals, &previous_mask_);
  struct sigaction child_action {};
  child_action.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &child_action, &previous_child_action_);
}

SignalInbox::~SignalInbox() {
  // An unread signal would take effect when the mask is restored.
  while (next()) {
  }
  ::sigaction(SIGCHLD, &previous_child_action_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

std::optional<int> SignalInbox::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

bool SignalInbox::has_signal(std::chrono::milliseconds timeout) const {
  pollfd watched{fd_.get(), POLLIN, 0};
  return ::poll(&watched, 1, static_cast<int>(timeout.count())) > 0;
}

// A signal between attempts finds nothing to save: the newest checkpoint is complete.
std::optional<int> wait_between_starts(SignalInbox& signals, std::chrono::milliseconds pause) {
  static_cast<void>(signals.has_signal(pause));
  const auto number = signals.next();
  if (!number) return std::nullopt;
  return *number == SIGINT ? exit_code_of_signal(*number) : static_cast<int>(kSavedExit);
}

std::vector<std::string> process_stat(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(") ");  // the name may contain anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 2));
  return {std::istream_iterator<std::string>(fields), {}};
}

bool safe_to_fork() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads)) == 1 + console_threads();
}

// The pidfd is opened while the child cannot have been reaped, so it is of this child even if the child has ended.
ChildProcess::ChildProcess(const Command& command) {
  pid_ = command.entry != nullptr && safe_to_fork() ? fork_entry(command) : spawn(command);
  // Raw system calls: the wrappers of glibc 2.36 cannot be linked from C++.
  pidfd_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0U)));
  if (pidfd_.get() >= 0) return;
  const std::string reason = system_message(errno);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  throw Error("cannot watch the process of " + command.executable + ": " + reason);
}

ChildProcess::~ChildProcess() {
  if (!is_running()) return;
  send(SIGKILL);
  siginfo_t ignored{};
  ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &ignored, WEXITED);
}

void ChildProcess::send(int signal_number) const {
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal_number, nullptr, 0U);
}

std::chrono::nanoseconds ChildProcess::processor_time() const {
  clockid_t clock{};
  timespec time{};
  // This call takes the number of a process, which is the child's as long as the child is not reaped.
  const bool known = is_running() && ::clock_getcpuclockid(pid_, &clock) == 0 && ::clock_gettime(clock, &time) == 0;
  return known ? std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec) : std::chrono::seconds(0);
}

bool ChildProcess::is_stopped() const {
  siginfo_t info{};
  const int found =
      // WNOWAIT does not consume the state
      ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WSTOPPED | WNOHANG | WNOWAIT);
  return found == 0 && info.si_pid != 0;
}

bool ChildProcess::is_waiting_for_disk() const {
  const auto stat = is_running() ? process_stat(pid_) : std::vector<std::string>();
  return !stat.empty() && stat.front() == "D";
}

std::optional<Ending> ChildProcess::reap() {
  siginfo_t info{};
  check_system(::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG), "wait for a rank");
  if (info.si_pid == 0) return std::nullopt;
  pidfd_ = FileDescriptor();
  return Ending{.kind = info.si_code == CLD_EXITED ? Ending::Kind::Exited : Ending::Kind::Killed,
                .value = info.si_status};
}

bool has_running(const std::vector<ChildProcess>& processes) {
  return std::ranges::any_of(processes, &ChildProcess::is_running);
}

void kill_running(const std::vector<ChildProcess>& processes) {
  for (const ChildProcess& process : processes)
    if (process.is_running()) process.send(SIGKILL);
}

std::vector<ChildExit> wait_for_exits(std::vector<ChildProcess>& processes, const SignalInbox& signals, int input,
                                      std::optional<std::chrono::steady_clock::time_point> deadline) {
  std::vector<pollfd> watched = {{signals.fd(), POLLIN, 0}, {input, POLLIN, 0}};  // poll() skips -1
  for (const ChildProcess& process : processes) watched.push_back({process.pidfd(), POLLIN, 0});
  int timeout = -1;
  if (deadline) {
    // Rounded up, because poll() would otherwise return just before the deadline, and the caller would spin until it.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now());
    timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }
  if (::poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR) check_system(-1, "watch processes");
  // Reaps every process that has ended by now, not only those that poll() named: a caller judges all exits together.
  std::vector<ChildExit> exits;
  for (std::size_t index = 0; index < processes.size(); ++index) {
    const auto ending = processes[index].is_running() ? processes[index].reap() : std::nullopt;
    if (ending) exits.push_back({index, *ending});
  }
  return exits;
}

}  // namespace chimera
