#pragma once
// Tables as text, for `chimera schedules`, the rows of `chimera sweep`, and the runs that `chimera compare` compares.

#include <string>
#include <vector>

namespace chimera {

/// Returns a table of rows with equally many cells. The first row, which must exist, is the head. Columns are two
/// blanks apart. The first `left` columns are aligned at the left, the others at the right. A column without any text
/// below its head is omitted. Widths count characters, not bytes of UTF-8.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left);

/// Returns a text whose lines have at most `columns` characters (0: unchanged), for terminals. The columns of a wide
/// table that do not fit follow below it, beside its first column. Other lines are broken at blanks.
[[nodiscard]] std::string fitted(const std::string& text, std::size_t columns);

}  // namespace chimera
