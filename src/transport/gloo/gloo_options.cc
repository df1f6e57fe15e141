#include "transport/gloo/gloo_options.h"

#include <fmt/format.h>
#include <algorithm>
#include <exception>
#include <system_error>

#include "core/error.h"
#include "core/signals.h"
#include "rendezvous/address.h"
#include "transport/gloo/group.h"

namespace chimera {

// The thread has background priority: it spins while another thread holds a connection's lock, and must not preempt
// that thread for a time slice (4 ms).
std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address) {
  const BackgroundThreads events;
  try {
    const std::string loopback = "127.0.0.1";
    if (address.empty()) static_cast<void>(own_interface({.host = loopback, .port = 9}));  // else Gloo waits for long
    return c10d::ProcessGroupGloo::createDeviceForHostname(address.empty() ? loopback : address);
  } catch (const std::system_error&) {
    throw;
  } catch (const std::exception&) {
    throw TransportError(
        address.empty() ? "the loopback interface is down or has no address; bring it up: ip link set lo up"
                        : fmt::format("cannot listen at {}; give an --interface of this host that is up", address));
  }
}

// Counts the sockets of the busiest rank: its neighbors in the tree, two channels per peer that it exchanges messages
// with, and the other members of its sums, twice if a sum has a group on the host and one over the hosts.
std::int64_t gloo_descriptors(std::int64_t world_size, const RankGroups& groups, const std::vector<RankPair>& pairs) {
  constexpr std::int64_t kCommon = 8;  // listener, epoll, its pipe, store, temporary files
  constexpr std::int64_t kTree = 1 + kTreeBranches;
  constexpr std::int64_t kDirections = 2;
  constexpr std::int64_t kLevels = 2;  // groups of a sum over several hosts
  if (world_size == 1) return 0;
  std::vector<std::int64_t> sockets(static_cast<std::size_t>(world_size), kTree);  // [rank]
  for (const auto& [low, high] : pairs) {
    sockets[static_cast<std::size_t>(low)] += kDirections;
    sockets[static_cast<std::size_t>(high)] += kDirections;
  }
  for (const auto& group : groups) {
    for (const RankId rank : group) sockets[rank.index()] += kLevels * (static_cast<std::int64_t>(group.size()) - 1);
  }
  return kCommon + *std::ranges::max_element(sockets);
}

}  // namespace chimera
