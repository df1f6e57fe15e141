#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace chimera::apps {

/// Progress on standard error: on a terminal a line rewritten five times a second, else a line every ten seconds.
class ProgressLine {
 public:
  ProgressLine();

  /// Shows the result of `make` if it is time.
  void show(const std::function<std::string()>& make);
  /// Clears the line on a terminal.
  void clear() const;

 private:
  bool on_terminal_;
  bool has_begun_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace chimera::apps
