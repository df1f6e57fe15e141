#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/file_descriptor.h"

// What the processes of a job know and nobody else does.

// One connection of a meeting: bytes with deadlines, and who is at its other end.

namespace chimera {

/// 32 bytes of the kernel's random numbers, as 64 hexadecimal digits. Throws Error where it gives none.
[[nodiscard]] std::string make_secret();

/// The first line of a file that its owner alone may read. Throws ConfigError where others may, or nothing is there.
[[nodiscard]] std::string read_secret(const std::string& path);

constexpr std::size_t kProofBytes = 32;
using Proof = std::array<std::uint8_t, kProofBytes>;  // also of random numbers used once

/// Numbers that nobody foresees. Throws Error where the kernel gives none.
[[nodiscard]] Proof random_numbers();
/// HMAC-SHA-256 of the words under the secret (RFC 2104): only who knows the secret can make it.
[[nodiscard]] Proof prove(std::string_view secret, std::string_view words);
/// Whether they are equal; takes as long where they are not.
[[nodiscard]] bool same_proof(const Proof& one, const Proof& other);
/// Its bytes.
[[nodiscard]] inline std::string_view bytes_of(const Proof& proof) {
  return {reinterpret_cast<const char*>(proof.data()), proof.size()};
}

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
