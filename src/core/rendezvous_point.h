#pragma once
// Where the ranks of a job find each other: they exchange their addresses through a key-value store. The launcher says
// where the store is, or the environment variables of `torchrun` or Slurm do. The transport (transport/gloo) reads this
// struct.

#include <cstdint>
#include <string>
#include <utility>

namespace chimera {

/// The file or server that holds the key-value store of a job.
struct RendezvousPoint {
  /// Path of a file that all ranks can open; the file is initially empty. May be "/proc/self/fd/N"; N may be closed
  /// after the rendezvous. If the path is empty, a server at `host` and `port` holds the store.
  std::string file = {};
  std::string host = {};     ///< Name or address of the server's host
  std::uint16_t port = 0;    ///< TCP port
  bool listens = false;      ///< Whether this rank runs the server, on this address only
  bool is_agent = false;     ///< Whether torchrun's agent runs the server: a TCPStore, without a secret
  std::string attempt = {};  ///< Key prefix that separates attempts of the job; may be empty
  std::string secret = {};   ///< Required from clients; empty: anyone may connect
  /// Network interface for traffic between hosts; empty: the interface of the route to the server
  std::string interface = {};
  /// Text that says how this point was chosen, a clause without a period. It is part of the error message if other
  /// ranks do not arrive.
  std::string origin = {};
};

/// Returns a rendezvous point at a file.
[[nodiscard]] inline RendezvousPoint file_rendezvous(std::string path) {
  RendezvousPoint rendezvous;
  rendezvous.file = std::move(path);
  return rendezvous;
}

}  // namespace chimera
