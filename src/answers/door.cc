#include "answers/door.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "core/limits.h"

namespace chimera {

std::string Field::flag_name() const {
  if (flag != nullptr) return flag;
  std::string words = "--" + name;
  std::replace(words.begin(), words.end(), '_', '-');
  return words;
}

void Field::check(std::int64_t number) const {
  if (most > 0) return require_between(flag_name(), number, least, most);
  if (number < least) throw ConfigError(fmt::format("{}: {} is not {} or more", flag_name(), number, least));
}

std::string Document::read() const {
  // Standard input can be read once, but several documents may name it.
  static std::string input;
  if (text) return *text;
  if (source != "-") return read_whole(source);
  if (input.empty()) input = read_whole(source);
  return input;
}

}  // namespace chimera
