#include "core/console.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <iostream>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/file_descriptor.h"
#include "core/files.h"
#include "core/signals.h"

// Each Console has a queue and a thread that writes it. The thread is detached and never ends, because it may be inside
// a write() that blocks forever; State is shared with it, so that it outlives the Console. After a fork only the
// calling thread exists, so restart_consoles() gives the child new consoles.

namespace chimera {
namespace {

/// Never destroyed, because the writer threads run until the process ends.
struct Consoles {
  Console* output = new Console(STDOUT_FILENO);
  Console* messages = new Console(STDERR_FILENO);
};

Consoles& consoles() {
  static Consoles both;
  return both;
}

}  // namespace

// Shared by the writer thread and the Console. The thread takes one text at a time and writes without the lock, so
// callers only wait for the queue. If the reader is gone, texts are dropped and the run continues.
struct Console::State {
  struct Text {
    std::string text;
    bool passing = false;
  };

  explicit State(int to) : descriptor(to) {}

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      news.wait(lock, [&] { return !waiting.empty(); });
      const std::string text = std::move(waiting.front().text);
      waiting.pop_front();
      // The text is out of the queue while it is written, so put() never changes it.
      bytes -= text.size();
      writing = true;
      const bool fails = failed;
      lock.unlock();
      const int cause = fails ? 0 : write_all(descriptor, text);
      lock.lock();
      writing = false;
      failed = failed || cause != 0;
      // EIO: the terminal was closed; EBADF: the stream was closed from the start
      if (cause != EPIPE && cause != EIO && cause != EBADF) error = error != 0 ? error : cause;
      if (waiting.empty()) drained.notify_all();
    }
  }

  const int descriptor;
  std::mutex mutex;
  std::condition_variable news;
  std::condition_variable drained;
  std::deque<Text> waiting;
  std::size_t bytes = 0;  ///< Pending bytes
  bool started = false;
  bool writing = false;
  bool failed = false;
  int error = 0;
};

/// Returns false if the system has no thread to give.
bool Console::start_writer(const std::shared_ptr<State>& state) {
  // Signals are for the main thread.
  const SignalBlocker none;
  try {
    std::thread([state] { state->run(); }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

Console::Console(int descriptor) : state_(std::make_shared<State>(descriptor)) {}

void Console::write(std::string text) { put(std::move(text), false); }

void Console::show(std::string text) { put(std::move(text), true); }

// A pending progress line is replaced, so a slow reader sees the newest one and not a backlog.
void Console::put(std::string text, bool passing) {
  const std::scoped_lock lock(state_->mutex);
  State& state = *state_;
  if (!state.started && !start_writer(state_)) {  // No more threads allowed: write here
    static_cast<void>(write_all(state.descriptor, text));
    return;
  }
  state.started = true;
  if (!state.waiting.empty() && state.waiting.back().passing) {
    state.bytes -= state.waiting.back().text.size();
    state.waiting.pop_back();
  }
  state.bytes += text.size();
  state.waiting.push_back({std::move(text), passing});
  // The newest text stays, whatever its size.
  while (state.bytes > kMaxWaiting && state.waiting.size() > 1) {
    state.bytes -= state.waiting.front().text.size();
    state.waiting.pop_front();
  }
  state.news.notify_one();
}

bool Console::drain(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  const auto all_written = [&] { return state_->waiting.empty() && !state_->writing; };
  constexpr int kRounds = 20;  // A ready reader gets more rounds: on a busy machine the writer thread waits for a core
  for (int round = 0; round < kRounds; ++round) {
    if (state_->drained.wait_for(lock, timeout, all_written)) return true;
    pollfd room{state_->descriptor, POLLOUT, 0};
    if (::poll(&room, 1, 0) == 0) return false;
  }
  return false;
}

int Console::error() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->error;
}

bool Console::has_writer() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->started;
}

Console& output() { return *consoles().output; }

Console& messages() { return *consoles().messages; }

int console_threads() { return static_cast<int>(output().has_writer()) + static_cast<int>(messages().has_writer()); }

void restart_consoles() {
  // Leaked: a thread that this process lacks may hold its locks.
  [[maybe_unused]] static Consoles inherited = consoles();
  consoles() = Consoles();
}

void finish_output(std::chrono::milliseconds timeout) {
  const auto begin = std::chrono::steady_clock::now();
  output().drain(timeout);
  const auto passed = std::chrono::steady_clock::now() - begin;
  messages().drain(timeout - std::chrono::duration_cast<std::chrono::milliseconds>(passed));
  if (output().error() != 0) throw Error("standard output cannot be written: " + system_message(output().error()));
}

void exit_now(int exit_code, std::chrono::milliseconds timeout) {
  std::cout.flush();
  std::fflush(nullptr);
  output().drain(timeout);
  messages().drain(timeout);
  ::_exit(exit_code);
}

void open_missing_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // Standard output is opened for reading only. A command whose result is its output then fails to write it, while
    // messages may be lost.
    const int flags = descriptor == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    const int opened = ::open("/dev/null", flags);  // Takes the lowest free number, `descriptor`
    if (opened >= 0 && opened != descriptor) ::close(opened);
  }
}

}  // namespace chimera
