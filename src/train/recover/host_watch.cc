#include "train/recover/host_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "core/console.h"
#include "core/file_descriptor.h"
#include "launch/local/place.h"
#include "rendezvous/address.h"
#include "runtime/gather.h"
#include "transport/connection_breaker.h"

namespace chimera {
namespace {

/// Exits at once. Only rank 0, or a rank per host if rank 0 is silent, prints the reason.
void end_for_silence(int rank, const std::string& reason, bool own) {
  const auto place = find_place(own_variables());
  if (own && (rank == 0 || (place && place->local_rank == 0))) {
    print_message(reason);
    messages().drain(kDrainAfterFailure);
  }
  ::_exit(static_cast<int>(ExitCode::PeerLost));
}

}  // namespace

std::unique_ptr<Heartbeats> watch_hosts(const RankEnvironment& rank, Transport& transport, bool keeps_connections) {
  // Our launcher sees its processes die, and a run on one host ends with the host.
  if (!rank.placed || rank.rendezvous.host.empty()) return nullptr;
  HeartbeatOptions options{.rank = rank.rank, .secret = rank.rendezvous.secret, .on_silence = {}};
  options.on_silence = [rank = rank.rank](const std::string& reason, bool own) { end_for_silence(rank, reason, own); };
  if (keeps_connections) {
    options.has_lost_connection = [open = open_tcp_connections()] {
      return !std::ranges::includes(open_tcp_connections(), open);
    };
  }
  // Rank 0 listens for the heartbeats of all others, and tells them its port over the connections that exist already.
  FileDescriptor socket;
  std::string own;  // Rank 0: port and address
  if (rank.rank == 0) {
    const std::string address = own_address(rank.rendezvous);
    socket = Heartbeats::socket_at(address);
    own = fmt::format("{} {}", Heartbeats::port_of(socket), address);
  }
  std::istringstream told(gather_texts(own, RankId(rank.rank), rank.world_size, transport).front());
  if (rank.rank == 0) return std::make_unique<Heartbeats>(std::move(socket), std::move(options));
  std::uint16_t port = 0;
  std::string address;
  told >> port >> address;
  return std::make_unique<Heartbeats>(address, port, std::move(options));
}

}  // namespace chimera
