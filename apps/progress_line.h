#pragma once

// The progress of commands that take long, such as `tokenize`, `evaluate` and `plan`. A person sees one line that
// changes, and a log file gets a line now and then. Callers report as often as they like; the text is made only when it
// is shown.

#include <chrono>
#include <functional>
#include <string>

namespace chimera::apps {

/// Progress of a long command on standard error. On a terminal that accepts escape sequences, one line is rewritten at
/// most five times a second, and cut to the terminal's width. In a log, a line is added at most every ten seconds, the
/// first one after ten seconds. Not thread-safe.
class ProgressLine {
 public:
  ProgressLine();

  /// Shows the text that `make` returns. Does not call `make` if the last line is too recent.
  void show(const std::function<std::string()>& make);
  /// Erases the line on a terminal. Has no effect in a log.
  void clear() const;

 private:
  bool on_terminal_;
  bool has_begun_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace chimera::apps
