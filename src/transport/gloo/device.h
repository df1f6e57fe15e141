#pragma once
// Where Gloo listens.

#include <cstdlib>
#include <memory>

#include "transport/gloo/group.h"

namespace chimera {

/// Loopback, or what GLOO_SOCKET_IFNAME names, or the address of this host's name.
inline std::shared_ptr<gloo::transport::Device> create_device(bool loopback) {
  if (loopback) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  // c10d itself reads this variable only in its Python half.
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  return c10d::ProcessGroupGloo::createDefaultDevice();
}

}  // namespace chimera
