#include "render/text_table.h"

#include <algorithm>

namespace chimera {
namespace {

/// Counts all bytes but the continuation bytes of UTF-8, which begin with the bits 10.
std::size_t num_characters(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0U) != 0x80U; }));
}

}  // namespace

std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (std::size_t r = 1; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < widths.size(); ++c) widths[c] = std::max(widths[c], num_characters(rows[r][c]));
  }
  for (std::size_t c = 0; c < widths.size(); ++c) {
    if (widths[c] > 0) widths[c] = std::max(widths[c], num_characters(rows.front()[c]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (widths[c] == 0) continue;
      const std::string blanks(widths[c] - num_characters(row[c]), ' ');
      line += (line.empty() ? "" : "  ") + (c < left ? row[c] + blanks : blanks + row[c]);
    }
    text += line.erase(line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace chimera
