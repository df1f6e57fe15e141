#pragma once
// Characters that a program makes one by one, as input of nlohmann's JSON parser, which takes iterators. Readers of
// large files use it to parse a text in blocks (text_source.h) instead of loading it.

#include <cstddef>
#include <iterator>

namespace chimera {

/// Single-pass iterator over generated characters, as input of nlohmann's parser. The end iterator has no source. A
/// source has `bool at_end()`, `char peek()` and `void advance()`, which may throw.
template <class Source>
class CharacterIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  CharacterIterator() = default;
  explicit CharacterIterator(Source& source) : source_(&source) {}
  char operator*() const { return source_->peek(); }
  CharacterIterator& operator++() {
    source_->advance();
    return *this;
  }
  CharacterIterator operator++(int) {
    const CharacterIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CharacterIterator& a, const CharacterIterator& b) { return a.ends() == b.ends(); }

 private:
  [[nodiscard]] bool ends() const { return source_ == nullptr || source_->at_end(); }
  Source* source_ = nullptr;
};

}  // namespace chimera
