#include "text_table.h"

#include <fmt/format.h>
#include <algorithm>

namespace chimera::apps {

std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (std::size_t r = 1; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < widths.size(); ++c) widths[c] = std::max(widths[c], rows[r][c].size());
  }
  for (std::size_t c = 0; c < widths.size(); ++c) {
    if (widths[c] > 0) widths[c] = std::max(widths[c], rows.front()[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (widths[c] == 0) continue;
      if (c > 0) line += "  ";
      line += c < left ? fmt::format("{:<{}}", row[c], widths[c]) : fmt::format("{:>{}}", row[c], widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace chimera::apps
