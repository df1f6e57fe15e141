#pragma once

// Reads lines from pipes without losing incomplete ones.

#include <cstddef>
#include <optional>
#include <string>

namespace chimera {

/// Lines from a pipe: the failure reports of ranks, and the orders to the ranks of a host. Borrows the descriptor.
class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// Returns whether all writers have closed the pipe, or a line is longer than kLongestLine.
  [[nodiscard]] bool has_ended() const { return has_ended_; }

  /// Reads available bytes. Blocks if there are none, unless the descriptor is nonblocking. Returns false if there were
  /// none.
  bool read();
  /// Returns the next complete line without its end.
  [[nodiscard]] std::optional<std::string> next();

  static constexpr std::size_t kLongestLine = std::size_t{1} << 20U;

 private:
  int descriptor_;
  std::string text_;
  bool has_ended_ = false;
};

}  // namespace chimera
