#pragma once

// Memory for sums of gradients between processes of a host (shared_sum.h). A rank maps the memory files of other ranks
// (MappedPeers), and copies tensors that are not in shared memory into files of its own (StagingMemory). Mappings and
// files are reused, because a page fault costs more than an addition.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "core/shared_memory.h"
#include "transport/connection_breaker.h"

namespace chimera {

/// Maps memory of other ranks, and keeps it mapped. Thread-safe.
class MappedPeers {
 public:
  /// If more than `most_files` files are mapped, forgets all, except those in use.
  explicit MappedPeers(std::size_t most_files = 1024) : most_files_(most_files) {}
  /// Returns a pointer to the byte at `address`. It stays mapped while the result exists. Throws Error if it cannot be
  /// mapped.
  [[nodiscard]] std::shared_ptr<std::byte> at(const SharedAddress& address);
  [[nodiscard]] std::size_t num_files() const { return mapped_.size(); }

 private:
  std::size_t most_files_;
  std::mutex mutex_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::shared_ptr<SharedMemory>> mapped_;  // (process, file)
};

/// Memory files for copies of tensors, reused because peers keep them mapped. Thread-safe.
class StagingMemory {
 public:
  /// Returns a file of at least `bytes` bytes, with undefined contents. Destroying the result makes the file free for a
  /// later call. Throws Error if the system refuses a file.
  [[nodiscard]] std::shared_ptr<SharedMemory> take(std::size_t bytes);

 private:
  struct Shelf {
    std::mutex mutex;
    std::multimap<std::size_t, std::unique_ptr<SharedMemory>> free;  // by size
  };
  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

/// Memory of all sums of a rank.
struct SumMemory {
  explicit SumMemory(std::shared_ptr<ConnectionBreaker> ends_waits = nullptr) : breaker(std::move(ends_waits)) {}

  std::shared_ptr<ConnectionBreaker> breaker;  // may be null
  MappedPeers peers;
  StagingMemory staging;

  /// Returns a lock that a thread holds while it adds gradients. Throws PeerLostError after close().
  [[nodiscard]] std::shared_lock<std::shared_mutex> begin_to_add();
  /// Waits until no thread adds gradients, and prevents later additions.
  void close();

 private:
  std::shared_mutex adding_;
  bool is_closed_ = false;
};

/// Returns whether this rank can map the memory file at `address`, and the file starts with `mark`, a random number
/// that its owner has written there. Without the mark, an address of another host could be mistaken for one of this
/// host, because both hosts may have the same process ids and descriptors.
[[nodiscard]] bool can_map(const SharedAddress& address, std::int64_t mark);

}  // namespace chimera
