#pragma once
// What the program says to people: written by a thread of its own, so that a reader who is slow, stopped (Ctrl-S, a
// paused pager) or gone never holds up the one who speaks.

#include <chrono>
#include <memory>
#include <string>

namespace chimera {

/// One stream of text. All functions may be called by any thread, and none of them waits for the reader but drain().
class Console {
 public:
  /// Texts go to this descriptor, which stays open.
  explicit Console(int descriptor);

  /// Writes a text, after those before it. Where the reader takes nothing for so long that more than kMostWaiting
  /// bytes wait, the oldest texts are dropped.
  void write(std::string text);
  /// Writes a text that the next one makes superfluous, such as a progress line that is written over: it is dropped
  /// where it still waits by then.
  void show(std::string text);
  /// Waits until everything has been written, at most for `patience` on a reader that takes nothing. Returns whether
  /// all was written.
  bool drain(std::chrono::milliseconds patience);
  /// The errno of a write that failed; 0 where none has. What follows a failure is dropped. A reader that has gone is
  /// no failure: nobody wants to know any more.
  [[nodiscard]] int error() const;
  /// Whether its thread runs.
  [[nodiscard]] bool has_writer() const;

  static constexpr std::size_t kMostWaiting = 1 << 20;

 private:
  struct State;
  static bool start_writer(const std::shared_ptr<State>& state);
  void put(std::string text, bool passing);

  std::shared_ptr<State> state_;  // shared with the thread, which a blocked write may keep beyond the program's end
};

/// Standard output and standard error of this process.
[[nodiscard]] Console& output();
[[nodiscard]] Console& messages();

/// The threads that write for them: 0 .. 2.
[[nodiscard]] int console_threads();
/// In a process that was forked, where those threads are not: both begin anew, and nothing waits.
void restart_consoles();

/// How long a run that ends waits for readers that take nothing: after success, and where it has to end at once.
inline constexpr std::chrono::milliseconds kPatientEnd{2000};
inline constexpr std::chrono::milliseconds kPromptEnd{300};
/// Waits, up to `patience` in all, until output() and messages() are written. Throws Error where standard output
/// failed, on a full disk for example.
void finish_output(std::chrono::milliseconds patience);

/// Ends this process once what it has said is written, or `patience` is over, as finish_output() waits. Nothing else is
/// torn down: no destructor of a global variable runs.
[[noreturn]] void end_at_once(int exit_code, std::chrono::milliseconds patience);

/// Opens /dev/null as standard input, output and error where the process was started without them: otherwise the next
/// file opened would take their place, and messages would go into it. First thing in main().
void keep_standard_descriptors();

}  // namespace chimera
