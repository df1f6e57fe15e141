#pragma once
// Columns of text: `chimera schedules`, the rows of `chimera sweep`, and runs side by side (`chimera compare`).

#include <string>
#include <vector>

namespace chimera {

/// Lays out rows of equal length in columns, two blanks apart. The first row is the head. The first `left` columns are
/// aligned at the left, the others at the right. A column without any text below its head is omitted. Widths count
/// characters, not bytes of UTF-8.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left);

}  // namespace chimera
