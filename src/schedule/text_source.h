#pragma once
// A text that is read once, from front to end, in blocks: what a reader needs follows what it keeps of the text, not
// the text's length, and a text that goes wrong early is refused early however long it is.

#include <iosfwd>
#include <string>
#include <string_view>

namespace chimera {

class TextSource {
 public:
  static constexpr int kEnd = -1;

  /// Reads from a stream, which must outlive this. `name` is what messages call the text.
  TextSource(std::istream& in, std::string name);
  /// Reads a text, which must outlive this.
  TextSource(std::string_view text, std::string name);
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  /// The next character, 0 to 255, or kEnd. Throws ConfigError where the stream fails.
  [[nodiscard]] int peek() { return next_ != end_ || fill() ? static_cast<unsigned char>(*next_) : kEnd; }
  /// Goes past the character that peek() showed.
  void advance() { ++next_; }
  /// The first character that is no blank, tab or line end, without going there; kEnd where the text, or its first 64
  /// KiB, have none. To be called before the first advance().
  [[nodiscard]] int first_visible();

 private:
  bool fill();

  std::string name_;
  std::istream* in_ = nullptr;  // none: the whole text lies at next_
  std::string block_;
  const char* next_ = nullptr;
  const char* end_ = nullptr;
};

}  // namespace chimera
