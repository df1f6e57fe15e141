#include "launch/local/line_reader.h"

#include <unistd.h>

#include <array>
#include <cerrno>

namespace chimera {

bool LineReader::read() {
  std::array<char, 4096> buffer{};
  const ssize_t size = ::read(descriptor_, buffer.data(), buffer.size());
  if (size > 0 && text_.size() < kLongestLine) {
    text_.append(buffer.data(), static_cast<std::size_t>(size));
  } else if (size >= 0 || (errno != EINTR && errno != EAGAIN)) {
    has_ended_ = true;
  }
  return size > 0;
}

std::optional<std::string> LineReader::next() {
  const auto end = text_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

}  // namespace chimera
