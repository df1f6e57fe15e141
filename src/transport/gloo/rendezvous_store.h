#pragma once

// The key-value store through which ranks find each other, as a Store of PyTorch's c10d, whose process groups need it.
// If all ranks are on one host, the store is in a file; otherwise it is in a server of rank 0 or of torchrun.

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"
#include "rendezvous/server.h"
#include "transport/connection_breaker.h"

namespace chimera {

/// Key-value store for rendezvous: a FileStore, a client of rank 0's RendezvousServer, or torchrun's TCPStore.
class RendezvousStore {
 public:
  /// `timeout` limits each wait. Throws TransportError if the file cannot be opened, the address cannot be bound, or no
  /// server answers in time; ConfigError if the secrets differ. `breaker` (may be null) ends waits on a file and for
  /// the server.
  RendezvousStore(const RendezvousPoint& rendezvous, std::chrono::milliseconds timeout,
                  const std::shared_ptr<ConnectionBreaker>& breaker = nullptr);
  ~RendezvousStore();
  RendezvousStore(RendezvousStore&&) noexcept = default;

  [[nodiscard]] const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  /// Returns once all ranks have called it. After a quarter of the time limit, the lowest waiting rank prints which
  /// ranks are missing, unless our launcher started the ranks. Throws TransportError with the missing ranks on timeout,
  /// PeerLostError if the server is gone, and ConfigError if two processes have the same rank.
  void await_all(int rank, int world_size);

  /// Returns this host's address; empty if all ranks are on one host.
  [[nodiscard]] std::string own_address() const;

  /// Makes the server refuse new clients, if this rank runs the server; otherwise does nothing.
  void stop_accepting();

  /// Leaks the store, its file and the server, so that they stay open until the process ends. Call it instead of the
  /// destructor after a failure without a breaker: Gloo's threads cannot be stopped then, and still read the store.
  void abandon() noexcept;

 private:
  void announce_missing(int rank, int world_size, std::chrono::milliseconds waited);

  RendezvousPoint rendezvous_;
  FileDescriptor file_;  // of the store, which must be destroyed first
  std::unique_ptr<RendezvousServer> server_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace chimera
