#pragma once

#include <string>
#include <vector>

namespace chimera::apps {

/// Lays out rows of equal length in columns, two blanks apart. The first `left` columns are aligned at the left, the
/// others at the right. A column without any text below its head is omitted.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left);

}  // namespace chimera::apps
