#pragma once

// Makes self-contained HTML pages: sections of tables and pictures in one style, without scripts or other files. Used
// for the pages of `chimera train --report` and `chimera compare`, and for the page of benchmarks/paper.

#include <string>
#include <vector>

namespace chimera {

/// Returns a table of plain texts as HTML. `head` has the titles of the columns. The first cell of a row is the title
/// of the row. The others are right-aligned if they are `numbers`. The table scrolls horizontally on a narrow page.
[[nodiscard]] std::string html_table(const std::vector<std::string>& head,
                                     const std::vector<std::vector<std::string>>& rows, bool numbers = true);

/// A part of a page.
struct Section {
  std::string heading;  ///< plain text
  std::string body;     ///< HTML
};

/// Returns a self-contained page. `title` and `subtitle` are plain text.
[[nodiscard]] std::string html_page(const std::string& title, const std::string& subtitle,
                                    const std::vector<Section>& sections);

/// Returns HTML that shows pictures (SVG) in columns if the page is wide enough, otherwise one below the other.
[[nodiscard]] std::string side_by_side(const std::vector<std::string>& pictures);

}  // namespace chimera
