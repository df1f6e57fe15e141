#include "core/text_source.h"

#include <algorithm>
#include <istream>

#include "core/error.h"

namespace chimera {
namespace {

constexpr std::size_t kBlock = std::size_t{64} * 1024;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

TextSource::TextSource(std::istream& in, std::string name) : name_(std::move(name)), in_(&in) {}

TextSource::TextSource(std::string_view text, std::string name)
    : name_(std::move(name)), next_(text.data()), end_(text.data() + text.size()) {}

// Looks only into the first block, which peek() has read: nothing is consumed.
int TextSource::first_visible() {
  if (peek() == kEnd) return kEnd;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (std::string_view(next_, static_cast<std::size_t>(end_ - next_)).starts_with(kByteOrderMark))
    next_ += kByteOrderMark.size();
  const char* found = std::find_if_not(next_, end_, is_blank);
  return found == end_ ? kEnd : static_cast<unsigned char>(*found);
}

bool TextSource::fill() {
  if (in_ == nullptr) return false;
  block_.resize(kBlock);
  in_->read(block_.data(), static_cast<std::streamsize>(kBlock));
  if (in_->bad()) throw ConfigError(name_ + ": cannot be read completely");
  next_ = block_.data();
  end_ = next_ + in_->gcount();
  return next_ != end_;
}

}  // namespace chimera
