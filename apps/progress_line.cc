#include "progress_line.h"

#include <unistd.h>

#include "core/console.h"
#include "core/terminal.h"

namespace chimera::apps {
namespace {

constexpr std::chrono::milliseconds kOnTerminal{200};
constexpr std::chrono::milliseconds kElsewhere{10'000};
constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

ProgressLine::ProgressLine() : on_terminal_(supports_escapes(STDERR_FILENO)) {}

void ProgressLine::show(const std::function<std::string()>& make) {
  const auto now = std::chrono::steady_clock::now();
  // `make` is called only if the line is shown, as callers report after each of many small pieces.
  if (now < next_) return;
  next_ = now + (on_terminal_ ? kOnTerminal : kElsewhere);
  // A log gets its first line after ten seconds; a short command leaves none.
  const bool is_first = !has_begun_;
  has_begun_ = true;
  if (on_terminal_)
    messages().show(kClearLine + clip_lines(make(), terminal_columns(STDERR_FILENO)));
  else if (!is_first)
    messages().write(make() + "\n");
}

void ProgressLine::clear() const {
  if (on_terminal_ && has_begun_) messages().write(kClearLine);
}

}  // namespace chimera::apps
