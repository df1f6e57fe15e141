#pragma once
// Lets nlohmann's JSON parser, which reads through iterators, read a large file block by block (text_source.h) instead
// of from memory.

#include <cstddef>
#include <iterator>

namespace chimera {

/// Single-pass iterator over the characters of a source, which must outlive it. A default-constructed iterator is the
/// end. `Source` has `bool at_end()`, `char peek()` and `void advance()`, which may throw.
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
