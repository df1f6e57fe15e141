#pragma once

// Chooses where the ranks of a job exchange their addresses (rendezvous) if another launcher, such as torchrun, has
// started them: in a file if all ranks are on one host, else in a key-value server on the host of rank 0. Environment
// variables decide. join_external_launcher() (rank.h) passes the chosen RendezvousPoint to the transport.

#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"
#include "launch/local/place.h"

namespace chimera {

/// Returns the rendezvous point of a rank.
/// - If all ranks are on one host: the file CHIMERA_STORE or, unless a server is set (torchrun's does not count), a
///   temporary file of this user that is named after the launcher process.
/// - On several hosts: the server at CHIMERA_MASTER_ADDR and CHIMERA_MASTER_PORT, or MASTER_ADDR and MASTER_PORT. Under
///   SLURM the default is the first node of the job step and a port computed from the job number.
///
/// CHIMERA_SECRET or CHIMERA_SECRET_FILE gives the secret of the server, GLOO_SOCKET_IFNAME the network interface.
/// Throws ConfigError if no rendezvous is set or the secret is invalid, Error if other users can write to the folder of
/// the file.
[[nodiscard]] RendezvousPoint rendezvous_point(const RankPlace& place, const Variables& variables);

/// Keeps the rendezvous file while the ranks of a host join. The first rank removes earlier contents; rank 0 deletes
/// the file at the end. Concurrent jobs that a user starts by hand from one process must set different CHIMERA_STORE,
/// because they would share the default file.
class RendezvousFile {
 public:
  /// Opens or creates the file. If `removes`, the destructor deletes it. Throws Error if the system refuses.
  RendezvousFile(std::string path, bool removes);
  RendezvousFile& operator=(RendezvousFile&&) = delete;
  ~RendezvousFile();

 private:
  std::string path_;
  bool removes_;
  FileDescriptor lock_;  // Shared lock of all ranks that use the file
};

/// Expands a SLURM node list: "n[0-2,07],login" becomes n0, n1, n2, n07, login. Throws ConfigError, naming the list, if
/// it is malformed.
[[nodiscard]] std::vector<std::string> expand_hosts(const std::string& list);

}  // namespace chimera
