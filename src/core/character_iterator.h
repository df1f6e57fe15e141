#pragma once
// Characters that are made one by one, as an iterator, which is what nlohmann's parser reads.

#include <cstddef>
#include <iterator>

namespace chimera {

/// The characters of a source, once, from front to end; without a source it is the end. The source has `bool at_end()`,
/// `char peek()`, the character that is next, and `void advance()`, which goes past it and may refuse the text.
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
