#include "profile/link_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace chimera {
namespace {

/// The error of the fitted line at each size, per cent.
std::string fit_line_of(const char* name, const std::vector<TimedSize>& points, const LinkTimes& link, double alphas) {
  std::string text = fmt::format("{:<16}", name);
  for (const auto& [bytes, seconds] : points) {
    const double fitted = alphas * link.alpha + link.beta * std::max(0.0, bytes - link.burst);
    text += fmt::format(" {:.0f}K {:+.0f} %", bytes / 1024, 100 * (fitted / seconds - 1));
  }
  return text + "\n";
}

}  // namespace

std::string link_line(const char* name, const LinkTimes& link) {
  const std::string burst = link.burst > 0 ? fmt::format(", {:.1f} kB at once", 1e-3 * link.burst) : "";
  return fmt::format("{:<16} alpha {:>8.1f} us, beta {:>7.3f} ns a byte ({:.2f} GB/s){}\n", name, 1e6 * link.alpha,
                     1e9 * link.beta, link.beta > 0 ? 1e-9 / link.beta : 0, burst);
}

std::string fit_lines_of(const LinkSamples& links, const LinkTimes& messages, const LinkTimes& sums) {
  return fit_line_of("line - messages", links.messages, messages, 1) + fit_line_of("line - sums", links.sums, sums, 2);
}

}  // namespace chimera
