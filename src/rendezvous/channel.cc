#include "rendezvous/channel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/reject.h"

namespace chimera {

Digest random_nonce() {
  Digest numbers{};
  if (::getrandom(numbers.data(), numbers.size(), 0) != static_cast<ssize_t>(numbers.size()))
    throw Error("cannot make a secret: " + system_message(errno));
  return numbers;
}

std::string make_secret() { return fmt::format("{:02x}", fmt::join(random_nonce(), "")); }

// Like ssh's keys: a secret that others can read is none.
std::string read_secret(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) reject("cannot read the secret in '{}': {}", path, system_message(errno));
  if ((status.st_mode & 077U) != 0) reject("others may read the secret in '{}'; chmod 600 it", path);
  std::ifstream file(path);
  std::string secret;
  std::getline(file, secret);
  if (secret.ends_with('\r')) secret.pop_back();
  if (secret.empty()) reject("'{}' has no secret in its first line", path);
  return secret;
}

Digest prove(std::string_view secret, std::string_view words) {
  Digest proof{};
  unsigned int size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(words.data());
  // HMAC() needs a valid pointer, even to an empty key.
  const char* key = secret.empty() ? "" : secret.data();
  if (::HMAC(::EVP_sha256(), key, static_cast<int>(secret.size()), bytes, words.size(), proof.data(), &size) == nullptr)
    throw Error("cannot compute a proof: SHA-256 is not available");
  return proof;
}

bool are_equal_digests(const Digest& one, const Digest& other) {
  return ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

namespace {

constexpr std::string_view kGreeting = "chimera rendezvous 2\n";  // protocol name and version
constexpr std::uint8_t kWelcome = 1;
constexpr std::uint8_t kStranger = 0;

std::span<const std::uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

Digest proof_of(std::string_view secret, std::string_view who, const Digest& server, const Digest& client) {
  std::string words(who);
  words += bytes_of(server);
  words += bytes_of(client);
  return prove(secret, words);
}

}  // namespace

Channel::Channel(FileDescriptor socket) : socket_(std::move(socket)) {
  // Otherwise a message's second part waits about 40 ms for the acknowledgment of the first.
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void Channel::close() noexcept { ::shutdown(socket_.get(), SHUT_RDWR); }

// Polls for at most a minute at a time, so that a deadline far away does not overflow poll()'s milliseconds.
void Channel::await(short events, Deadline deadline) const {
  pollfd watched{socket_.get(), events, 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) throw ChannelError("no answer in time");
    const int ready = ::poll(&watched, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw ChannelError("cannot wait for a socket: " + system_message(errno));
  }
}

// Sends do not block (MSG_DONTWAIT): a peer that stops reading must not hold this thread beyond the deadline.
void Channel::send_bytes(std::span<const std::uint8_t> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      await(POLLOUT, deadline);
    else if (errno != EINTR)
      throw ChannelError("the connection broke: " + system_message(errno));
  }
}

/// Returns false if the peer closed the connection before.
bool Channel::fill(std::span<std::uint8_t> bytes, Deadline deadline) {
  for (std::size_t filled = 0; filled < bytes.size();) {
    const ssize_t got = ::recv(socket_.get(), bytes.data() + filled, bytes.size() - filled, MSG_DONTWAIT);
    if (got > 0) {
      filled += static_cast<std::size_t>(got);
    } else if (got == 0) {
      // Between messages the peer may close: that is an end, not a fault.
      if (filled == 0) return false;
      throw ChannelError("the connection ended within a message");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      await(POLLIN, deadline);
    } else if (errno != EINTR) {
      throw ChannelError("the connection broke: " + system_message(errno));
    }
  }
  return true;
}

void Channel::receive_bytes(std::span<std::uint8_t> bytes, Deadline deadline) {
  if (!bytes.empty() && !fill(bytes, deadline)) throw ChannelError("the other end closed the connection");
}

void Channel::send(std::string_view message, Deadline deadline) {
  if (message.size() > kMaxBytes) throw ChannelError("a rendezvous message is too long");
  const auto size = static_cast<std::uint32_t>(message.size());
  std::array<std::uint8_t, sizeof size> head{};
  std::memcpy(head.data(), &size, sizeof size);  // hosts must have the same byte order
  send_bytes(head, deadline);
  send_bytes(as_bytes(message), deadline);
}

std::optional<std::string> Channel::receive(Deadline deadline) {
  std::uint32_t size = 0;
  std::array<std::uint8_t, sizeof size> head{};
  if (!fill(head, deadline)) return std::nullopt;
  std::memcpy(&size, head.data(), sizeof size);
  if (size > kMaxBytes) throw ChannelError("a rendezvous message is too long");
  std::string message(size, '\0');
  receive_bytes({reinterpret_cast<std::uint8_t*>(message.data()), message.size()}, deadline);
  return message;
}

// The server proves itself last: a stranger who only listens gets no HMAC to try secrets against. Each proof covers
// both nonces and the name of its side, so it can be neither replayed nor reflected.
void authenticate_as_server(Channel& channel, std::string_view secret, Deadline deadline) {
  const Digest own = random_nonce();
  channel.send_bytes(as_bytes(kGreeting), deadline);
  channel.send_bytes(own, deadline);
  Digest theirs{};
  Digest proof{};
  channel.receive_bytes(theirs, deadline);
  channel.receive_bytes(proof, deadline);
  const bool known = are_equal_digests(proof, proof_of(secret, "client", own, theirs));
  const std::array<std::uint8_t, 1> verdict{known ? kWelcome : kStranger};
  channel.send_bytes(verdict, deadline);
  if (!known) throw ChannelError("a stranger");
  channel.send_bytes(proof_of(secret, "server", own, theirs), deadline);
}

void authenticate_as_client(Channel& channel, std::string_view secret, Deadline deadline) {
  std::array<std::uint8_t, kGreeting.size()> greeting{};
  Digest theirs{};
  channel.receive_bytes(greeting, deadline);
  if (!std::ranges::equal(greeting, as_bytes(kGreeting))) throw ChannelError("it is another program");
  channel.receive_bytes(theirs, deadline);
  const Digest own = random_nonce();
  channel.send_bytes(own, deadline);
  channel.send_bytes(proof_of(secret, "client", theirs, own), deadline);
  std::array<std::uint8_t, 1> verdict{};
  channel.receive_bytes(verdict, deadline);
  if (verdict[0] != kWelcome)
    throw ConfigError("rank 0 and this rank have different secrets; give all ranks of the job the same CHIMERA_SECRET");
  Digest proof{};
  channel.receive_bytes(proof, deadline);
  if (!are_equal_digests(proof, proof_of(secret, "server", theirs, own)))
    throw ChannelError("it does not have the secret");
}

}  // namespace chimera
