#pragma once
// Command lines as lists of words.

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace chimera::testing {

/// The words of a command line. Converts from a text without quotes, whose words the blanks separate.
struct Words : std::vector<std::string> {
  using std::vector<std::string>::vector;

  template <std::convertible_to<std::string> Text>
  Words(const Text& text) {  // NOLINT(google-explicit-constructor): a text is the usual way to write them
    std::istringstream stream{std::string(text)};
    assign(std::istream_iterator<std::string>(stream), {});
  }

  Words& operator+=(const Words& more) {
    insert(end(), more.begin(), more.end());
    return *this;
  }
  [[nodiscard]] friend Words operator+(Words first, const Words& second) { return std::move(first += second); }
};

/// Returns the words of a text in which each {} stands for a value, which may hold blanks or be empty.
template <typename... Values>
[[nodiscard]] Words split(std::string text, const Values&... values) {
  constexpr char kEnd = '\x1f';
  constexpr auto printable = [](const auto& value) -> decltype(auto) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>)
      return value;
    else
      return std::string(value);
  };
  std::ranges::replace(text, ' ', kEnd);
  std::istringstream stream(fmt::format(fmt::runtime(text), printable(values)...) + kEnd);
  Words words;
  for (std::string word; std::getline(stream, word, kEnd);) words.push_back(word);
  return words;
}

}  // namespace chimera::testing
