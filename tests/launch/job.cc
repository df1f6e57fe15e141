#include "job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace chimera {
namespace {

constexpr std::chrono::seconds kPatience{10};

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  check_system(::pipe2(ends.data(), O_CLOEXEC), "create a pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::filesystem::path make_directory() {
  std::string name = (std::filesystem::temp_directory_path() / "launch_test_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) check_system(-1, "create " + name);
  return name;
}

/// Appends the available bytes to `text`. Returns false at the end of the stream.
bool append_from(const FileDescriptor& fd, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
  if (size > 0) text.append(buffer.data(), static_cast<std::size_t>(size));
  return size > 0;
}

}  // namespace

Job::Job(int ranks, const std::vector<std::string>& actions, const std::string& fault, std::chrono::milliseconds hang)
    : directory_(make_directory()) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::vector<std::string> arguments = {CHIMERA_LAUNCH_TEST_RANK, std::to_string(ranks)};
  arguments.insert(arguments.end(), actions.begin(), actions.end());
  start(arguments, fault, hang);
  mark();
}

Job::~Job() {
  if (!finished_) wait();
  std::filesystem::remove_all(directory_);
}

void Job::start(const std::vector<std::string>& arguments, const std::string& fault, std::chrono::milliseconds hang) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  Pipe output = make_pipe();
  Pipe messages = make_pipe();
  launcher_ = check_system(::fork(), "fork");
  if (launcher_ == 0) {
    ::setpgid(0, 0);
    ::signal(SIGHUP, SIG_DFL);  // nohup, which may run the tests, ignores SIGHUP, and the launcher inherits that
    ::dup2(output.write.get(), STDOUT_FILENO);
    ::dup2(messages.write.get(), STDERR_FILENO);
    ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    ::setenv("TMPDIR", directory_.c_str(), 1);
    ::setenv("CHIMERA_FAULT", fault.c_str(), 1);
    ::setenv("LAUNCH_TEST_HANG_MS", std::to_string(hang.count()).c_str(), 1);
    if (::chdir(directory_.c_str()) == 0) ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::setpgid(launcher_, launcher_);
  output_ = std::move(output.read);
  messages_ = std::move(messages.read);
}

/// Waits for output and reads it. Returns false if all processes have closed their ends or the time limit has passed.
bool Job::read_some() {
  std::array<pollfd, 2> watched = {
      {{output_open_ ? output_.get() : -1, POLLIN, 0}, {messages_open_ ? messages_.get() : -1, POLLIN, 0}}};
  if (!output_open_ && !messages_open_) return false;
  if (::poll(watched.data(), watched.size(), std::chrono::milliseconds(kPatience).count()) <= 0) {
    ADD_FAILURE() << "a process of the job is left, or says nothing";
    send_to_all(SIGKILL);
    return false;
  }
  if (watched[0].revents != 0) output_open_ = append_from(output_, result_.output);
  if (watched[1].revents != 0) messages_open_ = append_from(messages_, result_.messages);
  return true;
}

void Job::await_lines(int count) {
  while (std::ranges::count(result_.output, '\n') < count && read_some()) {
  }
}

void Job::send(int signal_number) {
  mark();
  ::kill(launcher_, signal_number);
}

void Job::send_to_all(int signal_number) {
  mark();
  ::kill(-launcher_, signal_number);
}

JobResult Job::wait() {
  while (read_some()) {
  }
  int status = 0;
  for (pid_t process = 0; (process = ::waitpid(-1, &status, 0)) > 0;) {
    if (process != launcher_) {
      ++result_.orphans;
    } else if (WIFEXITED(status)) {
      result_.exit_code = WEXITSTATUS(status);
    } else {
      result_.killed_by = WTERMSIG(status);
    }
  }
  finished_ = true;
  const auto elapsed = std::chrono::steady_clock::now() - clock_start_;
  result_.ending_time = std::chrono::duration_cast<std::chrono::milliseconds>(elapsed);
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory_)) ++result_.files_left;
  return result_;
}

}  // namespace chimera
