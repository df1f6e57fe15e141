#pragma once
// Where the ranks of a job find each other. The launcher fills it, or `torchrun`'s or Slurm's variables do; the
// transport reads it.

#include <cstdint>
#include <string>
#include <utility>

namespace chimera {

/// The file or server that holds the key-value store for the rendezvous of a job.
struct RendezvousPoint {
  /// File that all ranks can open, initially empty. May be "/proc/self/fd/N"; N may be closed after the rendezvous. If
  /// empty, `host` applies.
  std::string file = {};
  std::string host = {};     ///< Name or address of the server's host
  std::uint16_t port = 0;    ///< TCP port
  bool listens = false;      ///< Whether this rank runs the server, on this address only
  bool is_agent = false;     ///< Whether torchrun's agent runs the server: a TCPStore, without a secret
  std::string attempt = {};  ///< Key prefix that separates attempts of the job; may be empty
  std::string secret = {};   ///< Required from clients; empty: anyone may connect
  /// for traffic between hosts; empty: the interface of the route to the server
  std::string interface = {};
  /// Says for the user how this place was chosen, in a clause without a period: for ranks that wait for others in vain.
  std::string origin = {};
};

[[nodiscard]] inline RendezvousPoint file_rendezvous(std::string path) {
  RendezvousPoint rendezvous;
  rendezvous.file = std::move(path);
  return rendezvous;
}

}  // namespace chimera
