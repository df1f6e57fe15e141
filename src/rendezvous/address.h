#pragma once

// Addresses of the rendezvous server and of this host, for the connections of Gloo and NCCL, for the rendezvous server
// (server.h) and for heartbeats. A RendezvousPoint (core/rendezvous_point.h) names the server that all ranks of a job
// can reach. Two kinds of addresses do not work between hosts. Host names often resolve to loopback addresses, which
// are replaced. IPv6 link-local addresses are valid on one network link only, and are rejected.

#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"
#include "rendezvous/channel.h"

namespace chimera {

/// An address and port, IPv4 or IPv6, for system calls.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] int family() const { return storage.ss_family; }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  /// Returns the port, in network byte order.
  [[nodiscard]] in_port_t& port();
};

/// Returns the local address of a bound or connected socket, or nothing if the system refuses.
[[nodiscard]] std::optional<SocketAddress> address_of(int socket);

/// Returns "10.0.0.1" or "fd00::1", without the port.
[[nodiscard]] std::string to_text(const SocketAddress& address);

/// Returns host and port as text, such as "n0:29500".
[[nodiscard]] std::string server_name(const RendezvousPoint& rendezvous);

/// Returns the addresses of rendezvous.host, the most suitable first. Loopback addresses of a host name (Debian's
/// /etc/hosts: 127.0.1.1) are dropped. If no address remains, returns this host's address on rendezvous.interface or,
/// if that is empty, on the interface of the default route. "localhost" and literal addresses are kept, except IPv6
/// link-local ones. Throws TransportError if the name cannot be resolved or this host has no external address;
/// ConfigError if all addresses are link-local or the interface has no address.
[[nodiscard]] std::vector<SocketAddress> server_addresses(const RendezvousPoint& rendezvous);

/// Returns a socket that listens at the first server address that can be bound. Throws as server_addresses() does, and
/// TransportError if no address can be bound.
[[nodiscard]] FileDescriptor listen_at(const RendezvousPoint& rendezvous);

/// Returns a socket that is connected to the first server address that accepts. Throws as server_addresses() does, and
/// ChannelError if no address accepts by the deadline.
[[nodiscard]] FileDescriptor connect_to(const RendezvousPoint& rendezvous, Deadline deadline);

/// Returns the address at which this host listens for other ranks. If rendezvous.interface is set, this is an address
/// of the interface, preferably of the same family (IPv4 or IPv6) as the server's. Otherwise it is the source address
/// of the route to the server. Throws as server_addresses() does; ConfigError if the interface does not exist or has no
/// address that other hosts can use; TransportError if there is no route.
[[nodiscard]] std::string own_address(const RendezvousPoint& rendezvous);

/// Returns the name of the interface that has own_address(). Throws as own_address() does.
[[nodiscard]] std::string own_interface(const RendezvousPoint& rendezvous);

}  // namespace chimera
