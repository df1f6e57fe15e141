#pragma once

// Memory of sums between processes: files that hold copies of tensors, and maps of the files of peers. Maps and files
// are reused, because a page fault costs more than an addition.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "core/shared_memory.h"
#include "transport/connection_breaker.h"

namespace chimera {

/// Maps memory of other ranks; recently used files stay mapped. Thread-safe.
class MappedPeers {
 public:
  explicit MappedPeers(std::size_t most_files = 1024) : most_files_(most_files) {}
  /// Returns the byte at an address on this host, mapped while the result is held. Throws Error.
  [[nodiscard]] std::shared_ptr<std::byte> at(const SharedAddress& address);
  [[nodiscard]] std::size_t num_files() const { return mapped_.size(); }

 private:
  struct Mapping {
    std::shared_ptr<SharedMemory> memory;
    std::uint64_t last_use = 0;
  };
  void forget_the_oldest();

  std::size_t most_files_;
  std::mutex mutex_;
  std::uint64_t uses_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, Mapping> mapped_;  // (process, file)
};

/// Memory files for copies of tensors, reused because peers keep them mapped. Thread-safe.
class StagingMemory {
 public:
  /// Returns a file of at least `bytes` bytes, with undefined contents. Throws Error.
  [[nodiscard]] std::shared_ptr<SharedMemory> take(std::size_t bytes);

 private:
  struct Shelf {
    std::mutex mutex;
    std::multimap<std::size_t, std::unique_ptr<SharedMemory>> free;  // by size
  };
  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

struct SumMemory {
  explicit SumMemory(std::shared_ptr<ConnectionBreaker> ends_waits = nullptr) : breaker(std::move(ends_waits)) {}

  std::shared_ptr<ConnectionBreaker> breaker;  // may be null
  MappedPeers peers;
  StagingMemory staging;

  /// Returns the lock for adding gradients. Throws PeerLostError after close().
  [[nodiscard]] std::shared_lock<std::shared_mutex> begin_to_add();
  void close();

 private:
  std::shared_mutex adding_;
  bool is_closed_ = false;
};

/// Returns whether this rank can map the memory file at `address`, and the file starts with `mark`. A random mark tells
/// hosts apart, since process ids and descriptors may repeat on other hosts.
[[nodiscard]] bool can_map(const SharedAddress& address, std::int64_t mark);

}  // namespace chimera
