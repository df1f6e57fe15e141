#pragma once
// A text that a parser reads once, from beginning to end. A stream, such as a large file, is read in blocks, so that
// memory does not grow with the length of the text.

#include <iosfwd>
#include <string>
#include <string_view>

namespace chimera {

/// Reads a text character by character. Call peek(), then advance() to get to the next character.
class TextSource {
 public:
  static constexpr int kEnd = -1;  ///< Value instead of a character at the end of the text

  /// Reads from a stream, which must outlive this object. `name` is for messages.
  TextSource(std::istream& in, std::string name);
  /// Reads from `text`, which must outlive this object.
  TextSource(std::string_view text, std::string name);
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  /// Returns the next character, 0 to 255, or kEnd. Throws ConfigError if the stream fails.
  [[nodiscard]] int peek() { return next_ != end_ || fill() ? static_cast<unsigned char>(*next_) : kEnd; }
  /// Skips the character that peek() returned; call it only after peek() returned one.
  void advance() { ++next_; }
  /// Returns the first character that is not white space (blank, tab, line end), or kEnd if the first 64 KiB of a
  /// stream, or a whole text in memory, have none. Call it before advance(). It skips a byte order mark at the
  /// beginning, but no white space: the next peek() returns the first character after the mark.
  [[nodiscard]] int first_visible();

 private:
  /// Reads the next block. Returns false at the end of the text.
  bool fill();

  std::string name_;
  std::istream* in_ = nullptr;  // null: reads from memory
  std::string block_;
  const char* next_ = nullptr;
  const char* end_ = nullptr;
};

}  // namespace chimera
