#include "rendezvous/address.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <set>

#include "core/reject.h"

// All ranks get the same host name and must derive addresses from it that work from every host. server_addresses() does
// that for the server, own_address() for this host's own listeners; the functions before them ask the system: the
// resolver (look_up()), the interfaces (interface_addresses()) and the routes (address_towards()).

namespace chimera {
namespace {

SocketAddress copy_of(const sockaddr* address, socklen_t size) {
  SocketAddress copy;
  std::memcpy(&copy.storage, address, size);
  copy.size = size;
  return copy;
}

bool is_loopback(const SocketAddress& address) {
  if (address.family() == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return (ntohl(four->sin_addr.s_addr) >> 24U) == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr) != 0;
}

bool is_link_local(const SocketAddress& address) {
  return address.family() == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr) != 0;
}

/// On failure sets `error` and returns an empty list.
std::vector<SocketAddress> look_up(const RendezvousPoint& rendezvous, int flags, int& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  error = ::getaddrinfo(rendezvous.host.c_str(), std::to_string(rendezvous.port).c_str(), &hints, &found);
  if (error != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    addresses.push_back(copy_of(each->ai_addr, each->ai_addrlen));
  return addresses;
}

struct InterfaceAddress {
  std::string interface;
  SocketAddress address;
};

std::vector<InterfaceAddress> interface_addresses(std::set<std::string>& names) {
  ifaddrs* list = nullptr;
  check_system(::getifaddrs(&list), "list this host's network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    // Interfaces that are down count here: the message about an unknown name lists all.
    names.insert(each->ifa_name);
    // Tunnels may have no address.
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family == AF_INET) found.push_back({each->ifa_name, copy_of(each->ifa_addr, sizeof(sockaddr_in))});
    if (family == AF_INET6) found.push_back({each->ifa_name, copy_of(each->ifa_addr, sizeof(sockaddr_in6))});
  }
  return found;
}

[[noreturn]] void refuse_link_local(const std::string& what, const SocketAddress& address) {
  reject(
      "{} has only the IPv6 link-local address {}, which other hosts cannot use for connections; give it another "
      "address",
      what, to_text(address));
}

/// Prefers `family` (AF_UNSPEC: any), then addresses valid beyond the link, then IPv4.
SocketAddress address_of_interface(const std::string& interface, int family) {
  std::set<std::string> names;
  std::optional<SocketAddress> best;
  const auto rank_of = [family](const SocketAddress& address) {
    // Arrays compare element by element, so an earlier condition outweighs all later ones.
    return std::array{family == AF_UNSPEC || address.family() == family, !is_link_local(address),
                      address.family() == AF_INET};
  };
  for (const InterfaceAddress& each : interface_addresses(names)) {
    if (each.interface != interface) continue;
    if (!best || rank_of(each.address) > rank_of(*best)) best = each.address;
  }
  if (!names.contains(interface))
    reject("--interface {}: this host has no interface of this name; it has {}", interface, fmt::join(names, ", "));
  if (!best) reject("--interface {}: it has no address, or is down", interface);
  if (is_link_local(*best)) refuse_link_local(fmt::format("--interface {}: it", interface), *best);
  return *best;
}

/// Returns the source address of the route to `to`. Connecting a datagram socket sends nothing.
std::optional<SocketAddress> address_towards(const SocketAddress& to) {
  const FileDescriptor socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0 || ::connect(socket.get(), to.get(), to.size) != 0) return std::nullopt;
  return address_of(socket.get());
}

/// Returns the source address of the route to a documentation address (RFC 5737, RFC 3849), or else an address that is
/// neither loopback nor link-local.
SocketAddress outward_address(const RendezvousPoint& rendezvous) {
  for (const char* example : {"192.0.2.1", "2001:db8::1"}) {
    int error = 0;
    for (const SocketAddress& address : look_up({.host = example, .port = 9}, AI_NUMERICHOST, error))
      if (const auto own = address_towards(address); own && !is_link_local(*own)) return *own;
  }
  std::set<std::string> names;
  for (const InterfaceAddress& each : interface_addresses(names))
    if (!is_loopback(each.address) && !is_link_local(each.address)) return each.address;
  throw TransportError(
      fmt::format("'{}' is this host, and other hosts cannot reach its addresses; give an address, or --interface",
                  rendezvous.host));
}

bool is_literal(const RendezvousPoint& rendezvous) {
  int error = 0;
  // A resolver may be slow or absent, so literal addresses are recognized without it (AI_NUMERICHOST).
  return rendezvous.host.find("localhost") != std::string::npos || !look_up(rendezvous, AI_NUMERICHOST, error).empty();
}

/// Returns a socket for the first address that `use` accepts, or sets `reason`.
std::optional<FileDescriptor> first_socket(const std::vector<SocketAddress>& addresses, int flags, std::string& reason,
                                           const std::function<bool(int socket, const SocketAddress&)>& use) {
  for (const SocketAddress& address : addresses) {
    FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
    if (socket.get() >= 0 && use(socket.get(), address)) return socket;
    reason = system_message(errno);
  }
  return std::nullopt;
}

/// A host that drops packets would hold connect() for two minutes, so the socket does not block.
bool connect_by(int socket, const SocketAddress& address, Deadline deadline) {
  if (::connect(socket, address.get(), address.size) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd watched{socket, POLLOUT, 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  // Milliseconds per address; a later attempt may find a server that starts late.
  constexpr std::int64_t kMaxPatience = 5000;
  if (::poll(&watched, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, kMaxPatience))) == 0) errno = ETIMEDOUT;
  if (watched.revents == 0) return false;
  socklen_t size = sizeof(int);
  int error = 0;
  // The socket is also writable if the connection was refused; SO_ERROR tells which.
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0;
}

}  // namespace

in_port_t& SocketAddress::port() {
  return family() == AF_INET ? reinterpret_cast<sockaddr_in*>(&storage)->sin_port
                             : reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port;
}

std::optional<SocketAddress> address_of(int socket) {
  SocketAddress own;
  own.size = sizeof own.storage;
  const bool is_known = ::getsockname(socket, reinterpret_cast<sockaddr*>(&own.storage), &own.size) == 0;
  return is_known ? std::optional(own) : std::nullopt;
}

std::string to_text(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> text{};
  const int error = ::getnameinfo(address.get(), address.size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  if (error != 0) throw Error(fmt::format("cannot write an address: {}", ::gai_strerror(error)));
  return text.data();
}

std::string server_name(const RendezvousPoint& rendezvous) {
  return fmt::format("{}:{}", rendezvous.host, rendezvous.port);
}

// All ranks resolve the same name, but only on rank 0's host does it often mean a loopback address. Rank 0 then takes
// an address that others reach; the other ranks see that address anyway.
std::vector<SocketAddress> server_addresses(const RendezvousPoint& rendezvous) {
  int error = 0;
  std::vector<SocketAddress> addresses = look_up(rendezvous, 0, error);
  if (addresses.empty()) {
    throw TransportError(
        fmt::format("cannot use {} for the rendezvous: {}", server_name(rendezvous), ::gai_strerror(error)));
  }
  // Each host has its own number for the link, and Gloo sends addresses with this number.
  std::erase_if(addresses, is_link_local);
  if (addresses.empty()) {
    reject(
        "cannot use {} for the rendezvous: an IPv6 link-local address (fe80::) means another link on each host; give "
        "another address of this host",
        server_name(rendezvous));
  }
  if (is_literal(rendezvous) || std::ranges::none_of(addresses, is_loopback)) return addresses;
  std::erase_if(addresses, is_loopback);
  if (addresses.empty()) {
    addresses = {rendezvous.interface.empty() ? outward_address(rendezvous)
                                              : address_of_interface(rendezvous.interface, AF_UNSPEC)};
    addresses.front().port() = htons(rendezvous.port);
  }
  return addresses;
}

FileDescriptor listen_at(const RendezvousPoint& rendezvous) {
  std::string reason;
  auto listener = first_socket(server_addresses(rendezvous), 0, reason, [](int socket, const SocketAddress& address) {
    const int on = 1;
    // A restarted job uses the port again while connections of the last attempt are still in TIME_WAIT.
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return ::bind(socket, address.get(), address.size) == 0 && ::listen(socket, SOMAXCONN) == 0;
  });
  if (!listener)
    throw TransportError(fmt::format("cannot listen for the rendezvous at {}: {}", server_name(rendezvous), reason));
  return std::move(*listener);
}

FileDescriptor connect_to(const RendezvousPoint& rendezvous, Deadline deadline) {
  std::string reason;
  auto connected =
      first_socket(server_addresses(rendezvous), SOCK_NONBLOCK, reason,
                   [&](int socket, const SocketAddress& address) { return connect_by(socket, address, deadline); });
  if (!connected) throw ChannelError(reason);
  return std::move(*connected);
}

// Listens in the server's family, because in that family all ranks can reach one host, and probably each other.
std::string own_address(const RendezvousPoint& rendezvous) {
  const auto addresses = server_addresses(rendezvous);
  if (!rendezvous.interface.empty())
    return to_text(address_of_interface(rendezvous.interface, addresses.front().family()));
  for (const SocketAddress& address : addresses) {
    const auto own = address_towards(address);
    if (own && is_link_local(*own))
      refuse_link_local(fmt::format("the interface on the route to {}", server_name(rendezvous)), *own);
    if (own) return to_text(*own);
  }
  throw TransportError(fmt::format("cannot find a route to {}: {}", server_name(rendezvous), system_message(errno)));
}

std::string own_interface(const RendezvousPoint& rendezvous) {
  const std::string address = own_address(rendezvous);
  if (!rendezvous.interface.empty()) return rendezvous.interface;
  std::set<std::string> names;
  for (const InterfaceAddress& each : interface_addresses(names))
    if (to_text(each.address) == address) return each.interface;
  throw TransportError(fmt::format("no interface of this host has the address {} any more", address));
}

}  // namespace chimera
