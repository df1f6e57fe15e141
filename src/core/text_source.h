#pragma once
// A text that a parser reads once, from its begin to its end. A stream is read in blocks, so that memory does not grow
// with the length of the text.

#include <iosfwd>
#include <string>
#include <string_view>

namespace chimera {

class TextSource {
 public:
  static constexpr int kEnd = -1;

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
  /// Returns the first visible character without advancing, or kEnd if the first 64 KiB of a stream have none. Requires
  /// that advance() was not called. Skips a byte order mark.
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
