
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <optional>

#include "rendezvous/address.h"
#include "rendezvous/channel.h"
#include "rendezvous/server.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::chrono::milliseconds kPatience = std::chrono::minutes(1);

/// A server on loopback, at an ephemeral port.
struct Place {
  explicit Place(const char* host = "127.0.0.1") {
    rendezvous.host = host;
    rendezvous.secret = "the word";
    FileDescriptor listener = listen_at(rendezvous);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own), &size);
    rendezvous.port = ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);  // sin6_port has the same offset
    server.emplace(std::move(listener), rendezvous.secret);
  }
  RendezvousClient join() const { return RendezvousClient(rendezvous, kPatience); }

  RendezvousPoint rendezvous;
  std::optional<RendezvousServer> server;
};

/// Bytes that arrive at a socket until its other end closes it.
std::size_t bytes_until_the_end(const FileDescriptor& socket) {
  std::size_t bytes = 0;
  std::array<char, 4096> buffer{};
  while (true) {
    pollfd watched{socket.get(), POLLIN, 0};
    if (::poll(&watched, 1, static_cast<int>(kPatience.count())) <= 0) return std::string::npos;
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) return bytes;
    bytes += static_cast<std::size_t>(got);
  }
}

TEST(RendezvousTest, ValueOfARankIsReadByAnother) {
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
    const Place place(host);
    RendezvousClient one = place.join();
    RendezvousClient other = place.join();
    const std::string value("any\0bytes", 9);
    static_cast<void>(one.ask({.kind = RequestKind::Set, .names = {"name"}, .value = value}));
    EXPECT_EQ(other.ask({.kind = RequestKind::Get, .names = {"name"}}).value, value) << host;
  }
}

TEST(RendezvousTest, ChannelsDisableNagle) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const FileDescriptor same(::dup(socket.get()));
  const Channel channel(std::move(socket));
  int is_sent_at_once = 0;
  socklen_t size = sizeof is_sent_at_once;
  ASSERT_EQ(::getsockopt(same.get(), IPPROTO_TCP, TCP_NODELAY, &is_sent_at_once, &size), 0);
  EXPECT_NE(is_sent_at_once, 0);
}

TEST(RendezvousTest, AnswersAsC10dStoresDo) {
  const Place place;
  RendezvousClient rank = place.join();
  EXPECT_EQ(rank.ask({.kind = RequestKind::Add, .names = {"n"}, .number = 3}).number, 3);
  EXPECT_EQ(rank.ask({.kind = RequestKind::Add, .names = {"n"}, .number = -1}).number, 2);
  EXPECT_EQ(rank.ask({.kind = RequestKind::Count}).number, 1);
  EXPECT_TRUE(rank.ask({.kind = RequestKind::Get, .names = {"n"}}).is_there);
  EXPECT_FALSE(rank.ask({.kind = RequestKind::Get, .names = {"n", "m"}}).is_there);
  EXPECT_TRUE(rank.ask({.kind = RequestKind::Remove, .names = {"n"}}).is_there);
  EXPECT_FALSE(rank.ask({.kind = RequestKind::Remove, .names = {"n"}}).is_there);
  EXPECT_FALSE(rank.ask({.kind = RequestKind::Get, .names = {"n"}}).is_there);
}

TEST(RendezvousTest, WaitsForLaterValues) {
  const Place place;
  RendezvousClient early = place.join();
  RendezvousClient late = place.join();
  auto answer = std::async(std::launch::async, [&] {
    return early.ask({.kind = RequestKind::Get, .names = {"a", "b"}, .timeout = kPatience});
  });
  for (const char* name : {"a", "b"}) static_cast<void>(late.ask({.kind = RequestKind::Set, .names = {name}}));
  EXPECT_TRUE(answer.get().is_there);
}

TEST(RendezvousTest, RejectsAnotherSecret) {
  const Place place;
  RendezvousPoint wrong = place.rendezvous;
  for (const char* secret : {"", "another"}) {
    wrong.secret = secret;
    EXPECT_THAT([&] { return RendezvousClient(wrong, kPatience); },
                ThrowsMessage<ConfigError>(HasSubstr("CHIMERA_SECRET")));
  }
}

/// Requests of unknown clients: nothing, too little, noise, requests of TCPStore and Gloo, and lengths that no memory
/// can hold.
std::vector<std::string> words_of_strangers() {
  return {"",
          "x",
          std::string(64, '\xff'),
          std::string(8, '\0'),
          std::string("\x03\xff\xff\xff\x7f", 5) + "key",
          std::string(100'000, 'A')};
}

TEST(RendezvousTest, UnknownClientsGetNothingAndChangeNothing) {
  const Place place;
  RendezvousClient rank = place.join();
  static_cast<void>(rank.ask({.kind = RequestKind::Set, .names = {"name"}, .value = "value"}));
  constexpr std::size_t kGreetingBytes = 21 + 32;
  for (int round = 0; round < 50; ++round) {
    for (const std::string& words : words_of_strangers()) {
      const FileDescriptor stranger = connect_to(place.rendezvous, deadline_after(kPatience));
      static_cast<void>(::send(stranger.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      ::shutdown(stranger.get(), SHUT_WR);
      EXPECT_LE(bytes_until_the_end(stranger), kGreetingBytes + 1) << "the greeting, and that it is none of us";
    }
  }
  EXPECT_EQ(rank.ask({.kind = RequestKind::Count}).number, 1);
  EXPECT_EQ(rank.ask({.kind = RequestKind::Get, .names = {"name"}}).value, "value");
}

TEST(RendezvousTest, ManySilentClientsDoNotBlockRanksForLong) {
  const Place place;
  std::vector<FileDescriptor> strangers;
  for (int each = 0; each < RendezvousServer::kMaxUnauthenticated + 10; ++each)
    strangers.push_back(connect_to(place.rendezvous, deadline_after(kPatience)));
  strangers.clear();
  RendezvousClient rank = place.join();
  EXPECT_EQ(rank.ask({.kind = RequestKind::Count}).number, 0);
}

TEST(RendezvousTest, ServesConnectedRanksAfterItStopsListening) {
  Place place;
  RendezvousClient rank = place.join();
  place.server->stop_listening();
  EXPECT_EQ(rank.ask({.kind = RequestKind::Count}).number, 0);
  EXPECT_THROW(static_cast<void>(connect_to(place.rendezvous, deadline_after(kPatience))), ChannelError);
}

TEST(RendezvousTest, NamesALostServer) {
  Place place;
  RendezvousClient rank = place.join();
  auto answer = std::async(std::launch::async, [&] {
    return rank.ask({.kind = RequestKind::Get, .names = {"never"}, .timeout = kPatience});
  });
  place.server.reset();
  EXPECT_THROW(
      {
        if (!answer.get().is_there) throw PeerLostError("its wait was ended in order");
      },
      PeerLostError);
}

TEST(RendezvousTest, AClientGivesUpWhenNobodyWillListen) {
  RendezvousPoint rendezvous;
  {
    const Place place;
    rendezvous = place.rendezvous;
  }
  int attempts = 0;
  EXPECT_THROW(RendezvousClient(rendezvous, kPatience, [&] { return ++attempts > 2; }), PeerLostError);
  EXPECT_EQ(attempts, 3);
}

TEST(RendezvousTest, SilentPeerTimesOut) {
  RendezvousPoint rendezvous{.host = "127.0.0.1"};
  const FileDescriptor silent = listen_at(rendezvous);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  ::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&own), &size);
  rendezvous.port = ntohs(own.sin_port);
  EXPECT_THAT([&] { return RendezvousClient(rendezvous, std::chrono::milliseconds(100)); },
              ThrowsMessage<TransportError>(HasSubstr("within 0.1 s")));
}

}  // namespace
}  // namespace chimera
