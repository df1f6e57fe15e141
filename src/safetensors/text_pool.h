#pragma once
// Many short texts without an allocation for each.

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

namespace chimera {

/// Keeps texts for as long as it lives; they stay where they are, also when it is moved.
class TextPool {
 public:
  [[nodiscard]] std::string_view keep(std::string_view text) {
    if (free_ < text.size()) {
      free_ = std::max(kBlock, text.size());
      blocks_.push_back(std::make_unique_for_overwrite<char[]>(free_));
      next_ = blocks_.back().get();
    }
    char* const begin = next_;
    next_ = std::copy(text.begin(), text.end(), begin);
    free_ -= text.size();
    return {begin, text.size()};
  }

 private:
  static constexpr std::size_t kBlock = 1 << 16;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* next_ = nullptr;
  std::size_t free_ = 0;
};

}  // namespace chimera
