#pragma once
// Pages about runs: one self-contained HTML file, for light and dark paper, for wide screens and phones.

#include <string>
#include <utility>
#include <vector>

namespace chimera {

/// A table's cell: text, right-aligned where it is a number.
struct TableCell {
  std::string text;
  bool is_number = false;
};
/// A table with a head; its first column names the rows. It scrolls sideways where the page is narrow.
[[nodiscard]] std::string html_table(const std::vector<std::string>& head,
                                     const std::vector<std::vector<TableCell>>& rows);

/// A page's section: a heading, and its markup.
struct Section {
  std::string heading;
  std::string body;
};

/// The page. `title` and `subtitle` may hold any text, bodies are markup. It loads nothing.
[[nodiscard]] std::string html_page(const std::string& title, const std::string& subtitle,
                                    const std::vector<Section>& sections);

/// Pictures side by side where the page is wide enough.
[[nodiscard]] std::string side_by_side(const std::vector<std::string>& pictures);

}  // namespace chimera
