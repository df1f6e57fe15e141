#pragma once
// One connection of a meeting: bytes with deadlines, and who is at its other end.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/file_descriptor.h"

namespace chimera {

/// A moment that no wait outlasts.
using Deadline = std::chrono::steady_clock::time_point;
[[nodiscard]] inline Deadline after(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

/// The other end is closed, says nothing in time, or says what nobody of this job would.
class ChannelError : public TransportError {
 public:
  using TransportError::TransportError;
};

/// A connected socket of its own. One thread at a time, but for close().
class Channel {
 public:
  explicit Channel(FileDescriptor socket);

  /// A message of at most kMostBytes. Throws ChannelError where it is not taken in time.
  void send(std::string_view message, Deadline deadline);
  /// The next message; none: the other end closed before it. Throws ChannelError.
  [[nodiscard]] std::optional<std::string> receive(Deadline deadline);
  /// Bytes without a frame, as ends exchange them before they trust each other. Throws ChannelError.
  void send_bytes(std::span<const std::uint8_t> bytes, Deadline deadline);
  void receive_bytes(std::span<std::uint8_t> bytes, Deadline deadline);

  /// Wakes whoever waits here, for good. Any thread.
  void close() noexcept;

  static constexpr std::size_t kMostBytes = std::size_t{1} << 20U;

 private:
  [[nodiscard]] bool fill(std::span<std::uint8_t> bytes, Deadline deadline);
  void await(short events, Deadline deadline) const;

  FileDescriptor socket_;
};

/// Both ends show that they know the secret, without saying it: each gives a number used once, and the proof of both
/// numbers. The server learns first; it tells a stranger no more than that it is one. Throws ChannelError.
void greet_as_server(Channel& channel, std::string_view secret, Deadline deadline);
/// Throws ConfigError where the server says that the secret is another one; ChannelError where it is no meeting, does
/// not know the secret itself, or says nothing in time.
void greet_as_client(Channel& channel, std::string_view secret, Deadline deadline);

}  // namespace chimera
