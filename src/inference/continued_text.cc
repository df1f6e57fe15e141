#include "inference/continued_text.h"

#include <algorithm>

namespace chimera {
namespace {

/// Bytes at the end of `text` that may be the beginning of `stop`.
std::size_t begun(const std::string& text, const std::string& stop) {
  for (std::size_t bytes = std::min(text.size(), stop.size() - 1); bytes > 0; --bytes) {
    if (text.ends_with(std::string_view(stop).substr(0, bytes))) return bytes;
  }
  return 0;
}

}  // namespace

std::string ContinuedText::push(TokenId id) { return take(decoder_.push(id), false); }

std::string ContinuedText::finish() { return take(decoder_.finish(), true); }

std::string ContinuedText::take(const std::string& added, bool all) {
  if (stopped_) return {};
  std::string text = std::exchange(held_, {}) + added;
  std::size_t end = text.size();
  for (const std::string& stop : stops_) end = std::min(end, text.find(stop));
  stopped_ = end < text.size();
  if (!stopped_ && !all) {
    std::size_t bytes = 0;
    for (const std::string& stop : stops_) bytes = std::max(bytes, begun(text, stop));
    held_ = text.substr(end - bytes);
    end -= bytes;
  }
  return text.substr(0, end);
}

}  // namespace chimera
