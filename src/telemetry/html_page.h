#pragma once

// Self-contained HTML pages: sections of tables and pictures in one style, without scripts or other files. The pages of
// `train --report` and `compare` are made of these pieces, and so is the page of the paper's figures.

#include <string>
#include <vector>

namespace chimera {

/// A table cell; numbers are right-aligned.
struct TableCell {
  std::string text;
  bool is_number = false;
};
/// The first column names the rows. Scrolls horizontally on a narrow page.
[[nodiscard]] std::string html_table(const std::vector<std::string>& head,
                                     const std::vector<std::vector<TableCell>>& rows);

struct Section {
  std::string heading;
  std::string body;
};

/// Returns a self-contained page. `title` and `subtitle` are plain text, bodies are markup.
[[nodiscard]] std::string html_page(const std::string& title, const std::string& subtitle,
                                    const std::vector<Section>& sections);

/// Uses columns if the page is wide enough.
[[nodiscard]] std::string side_by_side(const std::vector<std::string>& pictures);

}  // namespace chimera
