#include "core/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace chimera {

bool supports_escapes(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

std::size_t terminal_columns(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string clip_lines(std::string_view text, std::size_t columns) {
  if (columns == 0) return std::string(text);
  std::string kept;
  std::size_t column = 0;
  for (const char byte : text) {
    if (byte == '\n')
      column = 0;
    else if ((static_cast<unsigned char>(byte) & 0xC0U) != 0x80)
      ++column;
    // Continuation bytes of UTF-8 do not count as columns, so they stay with their first byte, or go with it.
    if (column <= columns) kept += byte;
  }
  return kept;
}

}  // namespace chimera
