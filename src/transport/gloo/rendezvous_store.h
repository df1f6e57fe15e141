#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/rendezvous_point.h"
#include "rendezvous/server.h"
#include "transport/connection_breaker.h"

// A c10d store whose waits can be ended from outside.

// c10d's store at a job's meeting point.

namespace chimera {

/// What `store` does, except that a wait for a key throws PeerLostError soon after `breaker` has broken connections:
/// whoever would have set the key may never come.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> breakable_store(c10::intrusive_ptr<c10d::Store> store,
                                                              std::shared_ptr<ConnectionBreaker> breaker);

/// The file through which ranks meet, kept open. FileStore reopens its file by name at every use, even in its
/// destructor: a name that leads to our own descriptor stays right whatever becomes of the path or descriptor that the
/// caller named.
class StoreFile {
 public:
  /// Opens `path`, made where it is missing. Throws TransportError where it cannot be opened.
  explicit StoreFile(const std::string& path);
  StoreFile(const StoreFile&) = delete;
  StoreFile& operator=(const StoreFile&) = delete;
  ~StoreFile();

  /// A name of the open file, for this process alone.
  [[nodiscard]] std::string path() const;
  /// Leaves the file open until the process ends.
  void abandon() { descriptor_ = -1; }

 private:
  int descriptor_;
};

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
