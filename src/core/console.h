#pragma once
// Standard output and standard error of a training run, written by a separate thread per stream. A terminal or pipe
// whose reader is slow, paused (Ctrl-S, a pager) or gone therefore never blocks a training step. Ranks and the launcher
// write to output() and messages(), and call finish_output() or exit_now() at their end.

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>

namespace chimera {

/// One output stream with a queue of texts and a writer thread, which the first text starts. Thread-safe. Only drain()
/// waits for the reader of the stream. If the system has no thread left, write() and show() write the text directly,
/// and may block.
class Console {
 public:
  /// Borrows the descriptor of the stream.
  explicit Console(int descriptor);

  /// Adds a text to the queue. Drops the oldest texts if the queue has more than kMaxWaiting bytes.
  void write(std::string text);
  /// Adds a text that the next text replaces if it is still in the queue, for example a progress line.
  void show(std::string text);
  /// Waits until the queue is empty and everything is written, and returns true. Returns false if the reader accepts
  /// nothing after `timeout`, or if texts are left after 20 times `timeout`.
  bool drain(std::chrono::milliseconds timeout);
  /// Returns the errno of the first failed write, or 0. After a failure all later texts are dropped. A closed pipe,
  /// terminal or stream is not reported as a failure.
  [[nodiscard]] int error() const;
  /// Returns whether the writer thread has been started.
  [[nodiscard]] bool has_writer() const;

  static constexpr std::size_t kMaxWaiting = 1 << 20;  ///< bytes

 private:
  struct State;
  static bool start_writer(const std::shared_ptr<State>& state);
  void put(std::string text, bool passing);  // passing: the next text replaces it

  std::shared_ptr<State> state_;  // Shared with the thread, which may block in a write until the program ends
};

/// Returns the console of standard output, for results.
[[nodiscard]] Console& output();
/// Returns the console of standard error, for messages and progress.
[[nodiscard]] Console& messages();

/// Writes `chimera: LINE` to messages().
inline void print_message(const std::string& line) { messages().write("chimera: " + line + "\n"); }
template <class... Values>
void print_message(fmt::format_string<Values...> line, Values&&... values) {
  print_message(fmt::vformat(line, fmt::make_format_args(values...)));
}
/// Returns how many threads of these consoles run: 0 .. 2.
[[nodiscard]] int console_threads();
/// Resets both consoles in a forked process, which lacks the writer threads. Drops pending texts.
void restart_consoles();

/// Values for `timeout` at the end of the process.
inline constexpr std::chrono::milliseconds kDrainAfterSuccess{2000};  ///< After success
inline constexpr std::chrono::milliseconds kDrainAfterFailure{300};   ///< After a failure or a signal
/// Drains standard output with `timeout`, then standard error with the rest of it (Console::drain()). Throws Error if a
/// write to standard output failed, for example on a full disk; a slow or closed reader is no error.
void finish_output(std::chrono::milliseconds timeout);

/// Drains both consoles, each with this `timeout` (Console::drain()), then exits without running destructors of global
/// variables.
[[noreturn]] void exit_now(int exit_code, std::chrono::milliseconds timeout);

/// Opens /dev/null for each standard stream that is closed; otherwise the next opened file would receive messages.
/// Writing to std::cout still fails if standard output is closed; output() drops its texts. Must be called first in
/// main().
void open_missing_standard_streams();

}  // namespace chimera
