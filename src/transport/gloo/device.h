#pragma once
// Where Gloo listens.

#include <cstdlib>
#include <memory>
#include <string>

#include "transport/gloo/group.h"

namespace chimera {

/// At `address`; loopback where that is empty, for ranks of one host. GLOO_SOCKET_IFNAME, an interface, takes
/// precedence over an address.
inline std::shared_ptr<gloo::transport::Device> create_device(const std::string& address) {
  if (address.empty()) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  // c10d itself reads this variable only in its Python half.
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  return c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

}  // namespace chimera
