#pragma once
// How far a long command is, for people.

#include <chrono>
#include <functional>
#include <string>

namespace chimera::apps {

/// A line on standard error, now and then. On a terminal it is rewritten five times a second. Elsewhere each stays, one
/// every ten seconds, so that a command that takes less says nothing.
class ProgressLine {
 public:
  ProgressLine();

  /// Shows what `make` returns, if it is time for that.
  void show(const std::function<std::string()>& make);
  /// Takes the line away from a terminal.
  void clear() const;

 private:
  bool on_terminal_;
  bool has_begun_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace chimera::apps
