#include "answers/door.h"

#include <algorithm>

#include "core/files.h"

namespace chimera {

std::string Field::flag_name() const {
  if (flag != nullptr) return flag;
  std::string words = "--" + name;
  std::ranges::replace(words, '_', '-');
  return words;
}

std::string Document::read() const {
  static std::string input;
  if (text) return *text;
  if (source != "-") return read_whole(source);
  if (input.empty()) input = read_whole(source);
  return input;
}

}  // namespace chimera
