#include "core/printable.h"

#include <fmt/format.h>
#include <cmath>
#include <iterator>

namespace chimera {

std::string printable(std::string_view text, std::size_t most) {
  // Everything but ASCII is escaped: a name from a file cannot send control sequences to the terminal, and a text that
  // is cut stays valid UTF-8.
  constexpr const char* kDigits = "0123456789abcdef";
  std::string quote;
  for (const char c : text.substr(0, most)) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 0x20 && code < 0x7F)
      quote += c;
    else
      quote += {'\\', 'x', kDigits[code / 16], kDigits[code % 16]};
  }
  return text.size() > most ? quote + " ..." : quote;
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; std::abs(bytes) >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

}  // namespace chimera
