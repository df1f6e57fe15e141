#include "program.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "support/pipe.h"

namespace chimera::testing {
namespace {

constexpr std::chrono::milliseconds kLookAgain{2};  // while ranks are expected

/// A file in memory that reads `text` from its start.
FileDescriptor file_of(const std::string& text) {
  FileDescriptor file(check_system(::memfd_create("input", MFD_CLOEXEC), "create a file"));
  for (std::size_t done = 0; done < text.size();) {
    done += static_cast<std::size_t>(::write(file.get(), text.data() + done, text.size() - done));
  }
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

/// Files of LibTorch or this program; other files on the machine may come and go.
std::vector<std::string> shared_memory_files() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("torch") || name.starts_with("chimera") || name.starts_with("gloo")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

/// Makes `descriptor` the stream `number` of this process; closes the stream if `descriptor` is negative.
void give(int descriptor, int number) {
  if (descriptor < 0) {
    ::close(number);
  } else {
    ::dup2(descriptor, number);
  }
}

using Main = int (*)(int, char**);

/// Entry point of the subcommands that need LibTorch; loaded at the first call.
Main training_main() {
  static const Main entry = [] {
    const std::string library = std::filesystem::path(program_path()).parent_path() / "libchimera_training.so";
    void* loaded = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (loaded == nullptr) throw std::runtime_error(::dlerror());
    return reinterpret_cast<Main>(::dlsym(loaded, "chimera_training_main"));
  }();
  return entry;
}

/// Runs the training half in this process, and exits as the program does.
[[noreturn]] void run_loaded(Main main, std::vector<char*>& argv) {
  // if it unexpectedly starts a rank, the rank is this test program: it must run no tests
  ::setenv("GTEST_FILTER", "-*", 1);
  const int exit_code = main(static_cast<int>(argv.size()) - 1, argv.data());
  std::cout.flush();
  ::_exit(exit_code);
}

}  // namespace

std::string program_path() {
  const char* other = std::getenv("CHIMERA_PROGRAM");
  return other != nullptr ? other : CHIMERA_PROGRAM;
}

bool needs_training_half(const Words& arguments) {
  constexpr std::array kCommands = {"train", "profile", "bench", "export", "evaluate", "generate"};
  return !arguments.empty() && std::ranges::count(kCommands, arguments[0]) > 0;
}

ProgramRun::ProgramRun(const Words& arguments, ProgramSetup setup)
    : setup_(std::move(setup)), shared_memory_before_(shared_memory_files()) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  start(arguments);
}

ProgramRun::~ProgramRun() {
  if (finished_) return;
  ::kill(-process_, SIGKILL);
  wait();
}

void ProgramRun::start(const Words& arguments) {
  Words words = Words{setup_.program.empty() ? program_path() : setup_.program} + arguments;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const FileDescriptor input = file_of(setup_.input);
  Pipe output = make_pipe();
  Pipe messages = make_pipe();
  const Main loaded = setup_.is_copy ? training_main() : nullptr;
  std::fflush(nullptr);  // otherwise a copy would write the buffered output again
  process_ = check_system(::fork(), "fork");
  if (process_ == 0) {
    ::setpgid(0, 0);
    ::signal(SIGHUP, SIG_DFL);  // nohup, which may run the tests, ignores SIGHUP, and the program inherits that
    ::dup2(input.get(), STDIN_FILENO);
    give(setup_.output.value_or(output.write.get()), STDOUT_FILENO);
    give(setup_.messages.value_or(messages.write.get()), STDERR_FILENO);
    ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    ::setenv("TMPDIR", directory_.path("").c_str(), 1);
    for (std::string& variable : setup_.environment) ::putenv(variable.data());
    if (setup_.in_process) setup_.in_process();
    if (::chdir(directory_.path("").c_str()) != 0) ::_exit(127);
    if (loaded != nullptr) run_loaded(loaded, argv);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::setpgid(process_, process_);
  output_ = std::move(output.read);
  messages_ = std::move(messages.read);
  watched_.push_back({process_, FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0U)))});
}

/// Adds the ranks started so far: the kernel lists children in the order of creation.
void ProgramRun::look_for_ranks() {
  const std::string process = std::to_string(process_);
  std::ifstream children("/proc/" + process + "/task/" + process + "/children");
  for (pid_t child = 0; children >> child;) {
    if (std::ranges::count(watched_, child, &Watched::process) > 0) continue;
    FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0U)));
    if (pidfd.get() >= 0) watched_.push_back({child, std::move(pidfd)});
  }
}

/// Waits for events until `until` at most, and handles them. Returns false if all processes have closed their output or
/// the deadline has passed.
bool ProgramRun::read_some(std::optional<Clock::time_point> until) {
  if (!output_open_ && !messages_open_) return false;
  const bool looking = !all_ranks_known();
  std::vector<pollfd> files = {{output_open_ ? output_.get() : -1, POLLIN, 0},
                               {messages_open_ ? messages_.get() : -1, POLLIN, 0}};
  for (const Watched& watched : watched_) files.push_back({watched.pidfd.get(), POLLIN, 0});
  Clock::duration patience = setup_.deadline;
  if (looking) patience = std::min<Clock::duration>(patience, kLookAgain);
  if (until) patience = std::clamp<Clock::duration>(*until - Clock::now(), Clock::duration::zero(), patience);
  const timespec time = {std::chrono::duration_cast<std::chrono::seconds>(patience).count(),
                         std::chrono::nanoseconds(patience % std::chrono::seconds(1)).count()};
  const bool news = ::ppoll(files.data(), files.size(), &time, nullptr) > 0;
  if (news) last_news_ = Clock::now();
  if (Clock::now() - last_news_ >= setup_.deadline) {
    ADD_FAILURE() << "a process is left, or says nothing; so far: " << result_.messages;
    ::kill(-process_, SIGKILL);
    return false;
  }
  if (looking) look_for_ranks();
  if (files[0].revents != 0) output_open_ = append_from(output_, result_.output);
  if (files[1].revents != 0) messages_open_ = append_from(messages_, result_.messages);
  for (std::size_t i = 2; i < files.size(); ++i) {
    if (files[i].revents != 0) watched_[i - 2].pidfd = FileDescriptor();
  }
  return true;
}

bool ProgramRun::all_ranks_known() const { return watched_.size() >= static_cast<std::size_t>(setup_.ranks) + 1; }

void ProgramRun::await_ranks() {
  while (!all_ranks_known()) {
    if (!read_some()) return;
  }
}

void ProgramRun::watch_for(std::chrono::microseconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
    if (!read_some(end)) return;
  }
}

void ProgramRun::await_message(const std::string& text) {
  while (result_.messages.find(text) == std::string::npos) {
    if (read_some()) continue;
    ADD_FAILURE() << "'" << text << "' never came, but: " << result_.messages;
    return;
  }
}

pid_t ProgramRun::rank(int rank) const { return watched_.at(static_cast<std::size_t>(rank) + 1).process; }

void ProgramRun::await_output_lines(int count) {
  while (std::ranges::count(result_.output, '\n') < count && read_some()) {
  }
}

void ProgramRun::reap() {
  int status = 0;
  for (pid_t process = 0; (process = ::waitpid(-1, &status, 0)) > 0;) {
    if (process != process_) {
      ++result_.orphans;
    } else if (WIFEXITED(status)) {
      result_.exit_code = WEXITSTATUS(status);
    } else {
      result_.killed_by = WTERMSIG(status);
    }
  }
}

ProgramResult ProgramRun::wait() {
  while (read_some()) {
  }
  reap();
  finished_ = true;
  result_.left_files = !directory_.empty() || shared_memory_files() != shared_memory_before_;
  return result_;
}

ProgramResult run_program(const Words& arguments, const std::string& input) {
  constexpr std::array kStartNoProgram = {"train", "evaluate", "generate", "export"};  // their ranks are forks
  const bool is_copy = !arguments.empty() && std::ranges::count(kStartNoProgram, arguments[0]) > 0;
  return ProgramRun(arguments, {.input = input, .is_copy = is_copy}).wait();
}

ProgramResult succeeded(ProgramResult result, int line) {
  EXPECT_EQ(result.exit_code, 0) << "in line " << line << ": " << result.messages;
  return result;
}

void expect_clean(const ProgramResult& result) {
  EXPECT_EQ(result.orphans, 0);
  EXPECT_FALSE(result.left_files);
}

std::string output_of(const Words& arguments, const std::string& input) {
  return succeeded(run_program(arguments, input)).output;
}

}  // namespace chimera::testing
