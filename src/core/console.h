#pragma once
// Output to people, written by a separate thread. A reader that is slow, stopped (Ctrl-S, a paused pager) or gone never
// blocks the caller.

#include <chrono>
#include <memory>
#include <string>

namespace chimera {

/// One output stream. Thread-safe. Only drain() waits for the reader.
class Console {
 public:
  /// Borrows the descriptor.
  explicit Console(int descriptor);

  /// Appends a text. Drops the oldest texts if more than kMostWaiting bytes are pending.
  void write(std::string text);
  /// Appends a text that the next text replaces if it is still pending, for example a progress line.
  void show(std::string text);
  /// Waits until all is written, but at most `patience` for a reader that accepts nothing. Returns whether all was
  /// written.
  bool drain(std::chrono::milliseconds patience);
  /// Returns the errno of a failed write, or 0. Later texts are dropped. A closed pipe or stream does not count as a
  /// failure.
  [[nodiscard]] int error() const;
  [[nodiscard]] bool has_writer() const;

  static constexpr std::size_t kMostWaiting = 1 << 20;

 private:
  struct State;
  static bool start_writer(const std::shared_ptr<State>& state);
  void put(std::string text, bool passing);

  std::shared_ptr<State> state_;  // Shared with the thread, which may block in a write until the program ends
};

[[nodiscard]] Console& output();
[[nodiscard]] Console& messages();

/// Returns how many threads of these consoles run: 0 .. 2.
[[nodiscard]] int console_threads();
/// Resets both consoles in a forked process, which lacks the writer threads. Drops pending texts.
void restart_consoles();

/// Time limits for a reader that accepts nothing, at the end of a successful run and at an immediate end.
inline constexpr std::chrono::milliseconds kPatientEnd{2000};
inline constexpr std::chrono::milliseconds kPromptEnd{300};
/// Waits, up to `patience` in total, until both consoles are written. Throws Error if standard output failed, for
/// example on a full disk.
void finish_output(std::chrono::milliseconds patience);

/// Drains both consoles, each for at most `patience`, then exits without running destructors of global variables.
[[noreturn]] void end_at_once(int exit_code, std::chrono::milliseconds patience);

/// Opens /dev/null for each standard stream that is closed; otherwise the next opened file would receive messages.
/// Writing to std::cout still fails if standard output is closed; output() drops its texts. Must be called first in
/// main().
void open_missing_standard_streams();

}  // namespace chimera
