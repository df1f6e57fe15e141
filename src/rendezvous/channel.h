#pragma once

// Authenticated messages over TCP, for the rendezvous server and its clients (server.h). Both ends first prove that
// they have the secret of the job without sending it: each answers the other's random nonce with an HMAC. Afterwards a
// message is sent as its length and its bytes. Every call has a deadline. The heartbeats between hosts (heartbeats.h)
// use only prove().

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string_view>

#include "core/file_descriptor.h"

namespace chimera {

/// Returns 64 random hexadecimal digits. Throws Error if getrandom() fails.
[[nodiscard]] std::string make_secret();

/// Returns the first line of a file. Throws ConfigError if it is missing or the file mode permits access by others.
[[nodiscard]] std::string read_secret(const std::string& path);

constexpr std::size_t kDigestBytes = 32;
/// An HMAC (a proof that the sender has the secret), or a random nonce.
using Digest = std::array<std::uint8_t, kDigestBytes>;

/// Returns a random nonce.
[[nodiscard]] Digest random_nonce();
/// Returns the HMAC-SHA-256 (RFC 2104) of `words` with the key `secret`.
[[nodiscard]] Digest prove(std::string_view secret, std::string_view words);
/// Compares two proofs in constant time.
[[nodiscard]] bool are_equal_digests(const Digest& one, const Digest& other);
[[nodiscard]] inline std::string_view bytes_of(const Digest& proof) {
  return {reinterpret_cast<const char*>(proof.data()), proof.size()};
}

using Deadline = std::chrono::steady_clock::time_point;
[[nodiscard]] inline Deadline deadline_after(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

/// The peer closed the connection, missed a deadline, or violated the protocol.
class ChannelError : public TransportError {
 public:
  using TransportError::TransportError;
};

/// A connected socket that carries messages. Not thread-safe, except for close().
class Channel {
 public:
  explicit Channel(FileDescriptor socket);

  /// Sends a message. Throws ChannelError if it is longer than kMaxBytes or cannot be sent by the deadline.
  void send(std::string_view message, Deadline deadline);
  /// Receives a message. Returns nullopt if the peer closed the connection instead of sending one. Throws ChannelError
  /// on other failures.
  [[nodiscard]] std::optional<std::string> receive(Deadline deadline);
  /// Send or receive exactly these bytes, without a length, for authentication. Throw ChannelError on failure.
  void send_bytes(std::span<const std::uint8_t> bytes, Deadline deadline);
  void receive_bytes(std::span<std::uint8_t> bytes, Deadline deadline);

  /// Ends the connection for both peers: waiting and later calls throw ChannelError, and receive() returns nullopt.
  /// Thread-safe.
  void close() noexcept;

  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20U;

 private:
  [[nodiscard]] bool fill(std::span<std::uint8_t> bytes, Deadline deadline);
  void await(short events, Deadline deadline) const;

  FileDescriptor socket_;
};

/// Authenticates both ends of a new connection, on the server's side: each end sends a nonce and an HMAC of both
/// nonces. The client proves its secret first. Throws ChannelError if authentication fails.
void authenticate_as_server(Channel& channel, std::string_view secret, Deadline deadline);
/// Does the same on the client's side. Throws ConfigError if the server rejects the secret; ChannelError if the peer is
/// another program, cannot prove the secret itself, or misses the deadline.
void authenticate_as_client(Channel& channel, std::string_view secret, Deadline deadline);

}  // namespace chimera
