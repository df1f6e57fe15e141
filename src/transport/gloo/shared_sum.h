#pragma once

// Sums the gradients of a parameter group in shared memory. The *members* are the ranks that hold the group. All
// members on a host map each other's gradients. The elements are divided among these members into consecutive *slices*.
// Each member adds its slice of the gradients of all members on the host, and writes the sum to all of them, so
// gradients cross no socket within a host. If members are on several hosts, there is a member with the same slice on
// each host. These members are called *counterparts*, and they also sum their slices with each other.
//
//   all-gather of addresses -> add own slice -> (add hosts) -> write to members -> all-reduce of error flags
//
// The all-gather is a barrier: afterwards the gradients of all members are ready to be added. The last all-reduce is a
// barrier too: no member uses its gradients before all have written, and every member detects an error of another.
//
// A rank maps the memory files of other ranks (MappedPeers), and copies tensors that are not in shared memory into
// files of its own (StagingMemory). Mappings and files are reused, because a page fault costs more than an addition.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "core/shared_memory.h"
#include "transport/connection_breaker.h"
#include "transport/gloo/group.h"
#include "transport/transport.h"

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

/// Process groups of a sum, for one member.
struct SumGroups {
  GlooGroup host;                               // members that can map each other's memory
  GlooGroup counterparts;                       // one member per host, all with the same slice; null: one host
  std::vector<std::size_t> places_of_sum = {};  // [member of `counterparts`]: its index among all members of the sum
};

/// All-reduce or reduce-scatter of gradients in memory shared by a host's members. The constructor sends the addresses
/// of this member's tensors and does not wait. The additions run on threads of the process groups, or in the
/// constructor if all other members have sent their addresses before. In a reduce-scatter, a member keeps its slice
/// instead of writing it to all members. Over several hosts, it also sends each counterpart the elements that the
/// counterpart keeps. Tensors outside shared memory are copied into it.
///
/// A rank must call wait() before it starts the next sum over the same groups. The constructor throws the errors of
/// Gloo and StagingMemory. Tests inject faults (core/fault_point.h) at handed-in, in the constructor, and at sum, after
/// the all-gather.
class SharedSum {
 public:
  /// Without GradientSum::order, adds in ascending order of members within a host. An all-reduce then adds the hosts in
  /// Gloo's order, a reduce-scatter in ascending order. GradientSum::order must be null if there are several hosts.
  SharedSum(const SumGroups& groups, std::shared_ptr<SumMemory> memory, GradientSum sum,
            std::chrono::milliseconds timeout);
  /// Returns once all members' gradients hold their sums. If a member cannot add its slice, it throws the cause, and
  /// the others throw PeerLostError. Throws Gloo's errors if a member is lost.
  void wait();
  /// Calls `done`, on any thread, when the sum is complete; never if it fails.
  void call_when_done(std::function<void()> done);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace chimera
