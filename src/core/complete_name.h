#pragma once

// Short names: users may type the beginning of a name, such as `gpi` for gpipe, on the command line and in Python. If
// several names have this beginning, the word stays as it is, and the caller reports it as unknown.

#include <algorithm>
#include <string>
#include <vector>

namespace chimera {

/// Returns the only name that begins with the word. Returns the word if it is a name itself, or if none or several
/// names begin with it.
[[nodiscard]] inline std::string complete_name(const std::string& word, const std::vector<std::string>& names) {
  if (word.empty() || std::ranges::count(names, word) > 0) return word;
  const auto is_longer = [&](const std::string& name) { return name.starts_with(word); };
  if (std::ranges::count_if(names, is_longer) != 1) return word;
  return *std::ranges::find_if(names, is_longer);
}

}  // namespace chimera
