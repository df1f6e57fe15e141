// text_table() makes a table from cells. fitted() reads any text again and makes it narrower: it takes as many lines as
// have a gap of two blanks in common for a table, and writes a table that is too wide in blocks, each with the first
// column. A line is a list of characters, because a character of UTF-8 may have several bytes.

#include "render/text_table.h"

#include <algorithm>
#include <span>
#include <sstream>
#include <utility>

namespace chimera {
namespace {

/// Counts all bytes but the continuation bytes of UTF-8, which begin with the bits 10.
std::size_t num_characters(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0U) != 0x80U; }));
}

using Line = std::vector<std::string>;  // Of characters
using Lines = std::span<const Line>;

Line characters_of(const std::string& text) {
  Line line;
  for (const char c : text)
    if ((static_cast<unsigned char>(c) & 0xC0U) == 0x80U && !line.empty())
      line.back() += c;
    else
      line.emplace_back(1, c);
  return line;
}

bool is_blank(const Line& line, std::size_t at) { return at >= line.size() || line[at] == " "; }

/// Returns whether blanks separate columns in the line. A sentence has single blanks.
bool has_columns(const Line& line) {
  const auto first = std::ranges::find_if(line, [](const std::string& letter) { return letter != " "; });
  return std::search_n(first, line.end(), 2, " ") != line.end();
}

std::string part_of(const Line& line, std::size_t begin, std::size_t end) {
  std::string text;
  for (std::size_t at = begin; at < std::min(end, line.size()); ++at) text += line[at];
  return text;
}

/// Returns the line without blanks at its end. Rests of a long line begin with `indent` blanks.
std::string broken(const std::string& text, std::size_t columns, std::size_t indent) {
  Line line = characters_of(text.substr(0, text.find_last_not_of(' ') + 1));
  std::string result;
  while (line.size() > columns) {
    std::size_t at = columns;
    while (at > indent && line[at] != " ") --at;
    // A word that is wider than the terminal stays whole.
    if (at <= indent) break;
    result += part_of(line, 0, at) + "\n";
    Line rest(indent, " ");
    rest.insert(rest.end(), line.begin() + static_cast<std::ptrdiff_t>(at) + 1, line.end());
    line = std::move(rest);
  }
  return result + part_of(line, 0, line.size()) + "\n";
}

/// Returns where the columns of a table begin: behind two blanks in all lines. The first one is omitted.
std::vector<std::size_t> column_starts(Lines lines) {
  std::size_t longest = 0;
  for (const Line& line : lines) longest = std::max(longest, line.size());
  std::vector<std::size_t> starts;
  bool has_text = false;
  for (std::size_t at = 0; at + 1 < longest; ++at) {
    const auto has_blank = [&](std::size_t place) {
      return std::ranges::all_of(lines, [&](const Line& line) { return is_blank(line, place); });
    };
    // Blanks before the first text are an indent and not a gap between columns.
    has_text |= !has_blank(at);
    if (has_text && has_blank(at) && has_blank(at - 1) && !has_blank(at + 1)) starts.push_back(at + 1);
  }
  return starts;
}

/// Returns a table in blocks of columns.
std::string in_blocks(Lines lines, const std::vector<std::size_t>& starts, std::size_t columns) {
  const std::size_t label = starts.front();
  std::string text;
  for (std::size_t first = 0; first < starts.size();) {
    std::size_t next = first + 1;
    const auto end = [&](std::size_t column) { return column < starts.size() ? starts[column] : std::string::npos; };
    const auto width = [&](std::size_t column) {
      std::size_t last = 0;
      for (const Line& line : lines) {
        std::size_t length = std::min(line.size(), end(column));
        while (length > starts[first] && line[length - 1] == " ") --length;
        last = std::max(last, length);
      }
      return label + last - starts[first];
    };
    // A block has at least one column beside the first, however wide.
    while (next < starts.size() && width(next + 1) <= columns) ++next;
    if (first > 0) text += "\n";
    for (const Line& line : lines) {
      std::string beside = part_of(line, 0, label);
      beside.resize(std::max(beside.size(), label), ' ');
      text += broken(beside + part_of(line, starts[first], end(next)), columns, label);
    }
    first = next;
  }
  return text;
}

}  // namespace

std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  // From the rows below the head alone, which leaves the width of an empty column at 0.
  for (std::size_t r = 1; r < rows.size(); ++r)
    for (std::size_t c = 0; c < widths.size(); ++c) widths[c] = std::max(widths[c], num_characters(rows[r][c]));
  for (std::size_t c = 0; c < widths.size(); ++c)
    if (widths[c] > 0) widths[c] = std::max(widths[c], num_characters(rows.front()[c]));
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

std::string fitted(const std::string& text, std::size_t columns) {
  if (columns == 0) return text;
  std::vector<Line> all;
  std::istringstream input(text);
  for (std::string line; std::getline(input, line);) all.push_back(characters_of(line));
  std::string result;
  for (Lines rest(all); !rest.empty();) {
    const auto is_long = [&](const Line& line) { return line.size() > columns; };
    // A table ends before a line without columns, or before lines without its columns.
    auto count = static_cast<std::size_t>(std::ranges::find_if_not(rest, has_columns) - rest.begin());
    std::vector<std::size_t> starts;
    while (count > 1 && (starts = column_starts(rest.first(count))).empty()) --count;
    if (count > 1 && std::ranges::any_of(rest.first(count), is_long)) {
      result += in_blocks(rest.first(count), starts, columns);
    } else {
      count = 1;
      result += broken(part_of(rest.front(), 0, rest.front().size()), columns, 4);
    }
    rest = rest.subspan(count);
  }
  return result;
}

}  // namespace chimera
