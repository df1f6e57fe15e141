#pragma once

// Chooses the rendezvous of ranks that another launcher has started: a file on one host, or a server on the host of
// rank 0. The variables of the launcher decide. The chosen point goes to the transport.

#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"
#include "launch/local/place.h"

namespace chimera {

/// On one host: CHIMERA_STORE, or, without a server (torchrun's is ignored), a file of this user named after the
/// launcher process. On several: CHIMERA_MASTER_ADDR and CHIMERA_MASTER_PORT, or MASTER_ADDR and MASTER_PORT; under
/// SLURM by default the step's first node and a port from the job number. CHIMERA_SECRET or CHIMERA_SECRET_FILE gives
/// the secret, GLOO_SOCKET_IFNAME the interface. Throws ConfigError if no rendezvous is set or the secret is invalid;
/// Error if the file's folder is not this user's alone.
[[nodiscard]] RendezvousPoint rendezvous_point(const RankPlace& place, const Variables& variables);

/// Rendezvous file while ranks join. The first rank removes earlier contents; rank 0 deletes the file at the end.
/// Concurrent jobs started by hand from one process share it, unless CHIMERA_STORE differs.
class RendezvousFile {
 public:
  /// Throws Error. If `removes`, the destructor deletes the file.
  RendezvousFile(std::string path, bool removes);
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;
  ~RendezvousFile();

 private:
  std::string path_;
  bool removes_;
  FileDescriptor lock_;  // by all users of the file
};

/// Expands a SLURM node list: "n[0-2,07],login" becomes n0, n1, n2, n07, login. Throws ConfigError, naming the list,
/// if it has an empty name, an unclosed bracket, text after a bracket, or no rising range of numbers in a bracket.
[[nodiscard]] std::vector<std::string> expand_hosts(const std::string& list);

}  // namespace chimera
