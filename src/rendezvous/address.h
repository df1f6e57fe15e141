#pragma once

// Addresses of the rendezvous server and of this host. Host names often resolve to loopback addresses, and IPv6 link-
// local addresses mean another link on each host, so both are replaced or refused. Gloo, NCCL, the rendezvous server
// and heartbeats all use these addresses.

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"
#include "rendezvous/channel.h"

namespace chimera {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] int family() const { return storage.ss_family; }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  /// In network byte order.
  [[nodiscard]] in_port_t& port();
};

/// Returns the own address of a bound or connected socket, or nothing if the system refuses.
[[nodiscard]] std::optional<SocketAddress> address_of(int socket);

/// Returns "10.0.0.1" or "fd00::1", without the port.
[[nodiscard]] std::string to_text(const SocketAddress& address);

/// Returns the name of this host; empty if the system does not tell it.
[[nodiscard]] std::string host_name();

/// Returns "n0:29500".
[[nodiscard]] std::string place_of(const RendezvousPoint& rendezvous);

/// Returns the server's addresses, best first. Loopback addresses of a host name (Debian's /etc/hosts: 127.0.1.1) are
/// dropped. If nothing remains, returns this host's address on the configured interface or the default route.
/// "localhost" and literal addresses are kept, except IPv6 link-local ones. Throws TransportError if the name cannot be
/// resolved or this host has no external address; ConfigError if all addresses are link-local or the interface has no
/// address.
[[nodiscard]] std::vector<SocketAddress> server_addresses(const RendezvousPoint& rendezvous);

/// Listens only at the first server address that can be bound. Throws TransportError if all fail.
[[nodiscard]] FileDescriptor listen_at(const RendezvousPoint& rendezvous);

/// Connects to the first server address that accepts. Throws like server_addresses(), and ChannelError if no address
/// accepts by the deadline.
[[nodiscard]] FileDescriptor connect_to(const RendezvousPoint& rendezvous, Deadline deadline);

/// Returns the address at which this host listens for other ranks: the configured interface's, preferably in the
/// server's family, or else the source address of the route to the server. Throws ConfigError if the interface does not
/// exist or has no address; TransportError if there is no route.
[[nodiscard]] std::string own_address(const RendezvousPoint& rendezvous);

/// Returns the interface of own_address(). Throws like own_address().
[[nodiscard]] std::string own_interface(const RendezvousPoint& rendezvous);

}  // namespace chimera
