#pragma once
// Where the ranks of several hosts meet, and at which of a host's addresses it is reached.

#include <sys/socket.h>

#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"
#include "rendezvous/channel.h"

namespace chimera {

/// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] int family() const { return storage.ss_family; }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// "10.0.0.1" or "fe80::1%eth0", without the port.
[[nodiscard]] std::string to_text(const SocketAddress& address);

/// "n0:29500", as a meeting's server is named in messages.
[[nodiscard]] std::string place_of(const MeetingPoint& meeting);

/// The addresses of the meeting's server, best first. A name that leads back to the host that asks, as /etc/hosts often
/// has it (Debian: 127.0.1.1), stands for the address at which others reach that host: that of the meeting's interface,
/// else of the way out. "localhost" and addresses are taken as they are. Throws TransportError where nobody knows the
/// name, or the host has no such address.
[[nodiscard]] std::vector<SocketAddress> server_addresses(const MeetingPoint& meeting);

/// A socket that listens at one of them, and nowhere else. Throws TransportError where it cannot.
[[nodiscard]] FileDescriptor listen_at(const MeetingPoint& meeting);

/// A socket that is connected with one of them. Throws TransportError as server_addresses() does; ChannelError where
/// nobody is there now, or says so by the deadline.
[[nodiscard]] FileDescriptor connect_to(const MeetingPoint& meeting, Deadline deadline);

/// The address at which this host listens for the other ranks: that of the meeting's interface, in the server's family
/// if it has one; else the one from which the server is reached. Throws ConfigError where there is no such interface,
/// or it has no address; TransportError where no way leads to the server.
[[nodiscard]] std::string own_address(const MeetingPoint& meeting);

/// The network interface of that address: the meeting's, where it names one. Throws as own_address() does.
[[nodiscard]] std::string own_interface(const MeetingPoint& meeting);

}  // namespace chimera
