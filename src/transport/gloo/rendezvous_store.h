#pragma once
// c10d's store at a job's meeting point.

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/rendezvous_point.h"
#include "rendezvous/server.h"
#include "transport/connection_breaker.h"
#include "transport/gloo/store_file.h"

namespace chimera {

/// A FileStore; a store at rank 0's MeetingServer, whose operations all end in time; or the TCPStore of torchrun's
/// agent.
class MeetingStore {
 public:
  /// `timeout`: of every wait. Throws TransportError where the file cannot be opened, the address cannot be listened
  /// at, or nobody listens there in time; ConfigError where the server has another secret. `breaker` ends the waits of
  /// ranks that meet in a file, unless it is null.
  MeetingStore(const MeetingPoint& meeting, std::chrono::milliseconds timeout,
               const std::shared_ptr<ConnectionBreaker>& breaker = nullptr);
  ~MeetingStore();
  MeetingStore(MeetingStore&&) noexcept = default;

  [[nodiscard]] const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  /// Returns once all ranks have called it. Throws TransportError, which lists those that have not in time.
  void await_all(int rank, int world_size);

  /// The address of this host at which others reach it; empty: all ranks are on one host.
  [[nodiscard]] std::string own_address() const;

  /// Once all have met: nobody else is let in.
  void close_doors();

  /// Leaves store and file open until the process ends.
  void abandon() noexcept;

 private:
  MeetingPoint meeting_;
  std::unique_ptr<StoreFile> file_;  // closed after the store that reads it
  std::unique_ptr<MeetingServer> server_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace chimera
