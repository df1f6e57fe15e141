
#include "rendezvous/address.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <string>

#include "core/error.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

TEST(AddressTest, NumericAddressesAreUnchanged) {
  for (const char* host : {"127.0.0.1", "::1", "10.1.2.3", "127.0.1.1"}) {
    const auto addresses = server_addresses({.host = host, .port = 7});
    ASSERT_EQ(addresses.size(), 1U);
    EXPECT_EQ(to_text(addresses.front()), host);
  }
}

TEST(AddressTest, LocalhostIsLoopback) {
  EXPECT_THAT(to_text(server_addresses({.host = "localhost", .port = 7}).front()),
              ::testing::AnyOf("127.0.0.1", "::1"));
}

// Debian's /etc/hosts maps the host's own name to 127.0.1.1, which other hosts cannot reach.
TEST(AddressTest, AnotherNameOfThisHostIsNotLoopback) {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  try {
    for (const SocketAddress& address : server_addresses({.host = name.data(), .port = 7}))
      EXPECT_THAT(to_text(address), ::testing::Not(StartsWith("127.")));
  } catch (const TransportError& error) {  // a machine without a network
    EXPECT_THAT(error.what(),
                ::testing::AnyOf(HasSubstr("other hosts cannot reach its addresses"), HasSubstr("for the rendezvous")));
  }
}

TEST(AddressTest, ReportsAnUnknownName) {
  EXPECT_THAT([] { return server_addresses({.host = "no.such.host.invalid", .port = 7}); },
              ThrowsMessage<TransportError>(HasSubstr("cannot use no.such.host.invalid:7 for the rendezvous")));
}

TEST(AddressTest, RefusesALinkLocalAddress) {
  for (const char* host : {"fe80::1", "fe80::1%lo"}) {
    const auto refusal = ThrowsMessage<ConfigError>(AllOf(HasSubstr(std::string("cannot use ") + host + ":7 for the"),
                                                          HasSubstr("IPv6 link-local address (fe80::)")));
    EXPECT_THAT([&] { return server_addresses({.host = host, .port = 7}); }, refusal);
    EXPECT_THAT([&] { return own_address({.host = host, .port = 7}); }, refusal);
  }
}

TEST(AddressTest, OwnAddressIsOnTheRouteToThePeer) {
  EXPECT_EQ(own_address({.host = "127.0.0.1", .port = 7}), "127.0.0.1");
  EXPECT_EQ(own_address({.host = "::1", .port = 7}), "::1");
}

TEST(AddressTest, GivenInterfaceTakesPrecedence) {
  EXPECT_EQ(own_address({.host = "10.1.2.3", .port = 7, .interface = "lo"}), "127.0.0.1");
  EXPECT_THAT(
      [] { return own_address({.host = "127.0.0.1", .port = 7, .interface = "wire7"}); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("--interface wire7: this host has no interface"), HasSubstr("lo"))));
}

TEST(AddressTest, InterfaceIsOnTheRouteToTheRendezvous) {
  EXPECT_EQ(own_interface({.host = "10.1.2.3", .port = 7, .interface = "lo"}), "lo");
  EXPECT_EQ(own_interface({.host = "127.0.0.1", .port = 7}), "lo");
  EXPECT_THAT([] { return own_interface({.host = "127.0.0.1", .port = 7, .interface = "wire7"}); },
              ThrowsMessage<ConfigError>(HasSubstr("--interface wire7: this host has no interface")));
}

TEST(AddressTest, ListensOnlyAtTheGivenAddress) {
  const FileDescriptor listener = listen_at({.host = "127.0.0.1"});
  SocketAddress own;
  own.size = sizeof own.storage;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size), 0);
  EXPECT_EQ(to_text(own), "127.0.0.1");
  EXPECT_THAT([] { static_cast<void>(listen_at({.host = "192.0.2.1", .port = 7})); },
              ThrowsMessage<TransportError>(HasSubstr("cannot listen for the rendezvous at 192.0.2.1:7")));
}

}  // namespace
}  // namespace chimera
