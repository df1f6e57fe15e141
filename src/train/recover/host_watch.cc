#include "train/recover/host_watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/console.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "launch/local/place.h"
#include "rendezvous/address.h"

namespace chimera {
namespace {

/// Exits at once. Only rank 0, or a rank per host if rank 0 is silent, prints the reason.
void end_for_silence(int rank, const std::string& reason, bool own) {
  const auto place = find_place(own_variables());
  if (own && (rank == 0 || (place && place->local_rank == 0))) {
    messages().write("chimera: " + reason + "\n");
    messages().drain(kPromptEnd);
  }
  ::_exit(static_cast<int>(ExitCode::PeerLost));
}

}  // namespace

std::unique_ptr<Heartbeats> watch_hosts(const Job& job, const RankEnvironment& rank, Transport& transport) {
  if (!rank.placed || rank.rendezvous.host.empty() || job.options.hang_seconds == 0) return nullptr;
  constexpr std::size_t kMostLetters = 128;  // Address with interface
  HeartbeatOptions options{.rank = rank.rank, .secret = rank.rendezvous.secret, .on_silence = {}};
  options.on_silence = [rank = rank.rank](const std::string& reason, bool own) { end_for_silence(rank, reason, own); };
  FileDescriptor socket;
  std::vector<double> words(1 + kMostLetters, 0);  // Port, then address
  if (rank.rank == 0) {
    const std::string address = own_address(rank.rendezvous);
    socket = Heartbeats::socket_at(address);
    words[0] = Heartbeats::port_of(socket);
    std::ranges::copy(address.substr(0, kMostLetters), words.begin() + 1);
  }
  transport.all_sum(words);
  if (rank.rank == 0) return std::make_unique<Heartbeats>(std::move(socket), std::move(options));
  std::string address;
  for (std::size_t i = 1; i < words.size() && words[i] != 0; ++i) address += static_cast<char>(words[i]);
  return std::make_unique<Heartbeats>(address, static_cast<std::uint16_t>(words[0]), std::move(options));
}

}  // namespace chimera
