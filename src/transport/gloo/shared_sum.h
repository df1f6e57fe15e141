#pragma once
// All-reduces over ranks of one host, formed in memory that all of them map; only notifications are sent. Over several
// hosts with as many members each, every host does so, and slices are summed between hosts.

#include <ATen/core/Tensor.h>

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
#include "schedule/reduction_tree.h"
#include "transport/gloo/group.h"

namespace chimera {

/// Maps memory of other ranks. The files that were used last stay mapped. Any thread may use it.
class MappedPeers {
 public:
  explicit MappedPeers(std::size_t most_files = 1024) : most_files_(most_files) {}
  /// The byte at that address, which lies in a memory file of this host; it stays mapped as long as anyone holds the
  /// result. Throws Error where it cannot be mapped.
  [[nodiscard]] std::shared_ptr<std::byte> at(const SharedAddress& address);
  /// Number of files that are kept mapped.
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

/// Memory files for copies of tensors that lie elsewhere. Whoever maps such a file keeps it, so a file that is given
/// back is used again: there are never more of a size (a power of two) than were in use at once. Any thread may use it.
class StagingMemory {
 public:
  /// A file of at least so many bytes, whatever they hold; given back when nobody holds the result. Throws Error where
  /// the system gives none.
  [[nodiscard]] std::shared_ptr<SharedMemory> take(std::size_t bytes);
  /// Files that were made so far.
  [[nodiscard]] std::size_t num_files() const;

 private:
  struct Shelf {
    std::mutex mutex;
    std::size_t num_files = 0;
    std::multimap<std::size_t, std::unique_ptr<SharedMemory>> free;  // by size
  };
  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();  // files may outlive this
};

/// What the shared sums of a rank have in common.
struct SumMemory {
  /// `ends_waits`: as GlooOptions::breaker.
  explicit SumMemory(std::shared_ptr<ConnectionBreaker> ends_waits = nullptr) : breaker(std::move(ends_waits)) {}

  std::shared_ptr<ConnectionBreaker> breaker;  // null: nobody does
  MappedPeers peers;
  StagingMemory staging;

  /// Begins to add to gradients; to be held meanwhile. Throws PeerLostError after close().
  [[nodiscard]] std::shared_lock<std::shared_mutex> begin_to_add();
  /// Returns once this rank adds nothing; from now on nobody begins to.
  void close();

 private:
  std::shared_mutex adding_;
  bool is_closed_ = false;
};

/// A memory file that begins with a random number, by which others know it: the same process id and descriptor may be
/// another process's on their host.
struct MarkedMemory {
  SharedAddress address;
  std::int64_t mark = 0;
};

/// [rank]: whether this rank can map its memory.
[[nodiscard]] std::vector<bool> mappable(const std::vector<MarkedMemory>& memories);

/// The process groups of a sum. Over several hosts, each member of a host owns a slice of the sum, as its counterparts
/// on the other hosts do.
struct SumGroups {
  GlooGroup host;          // members who can all map each other's memory
  GlooGroup counterparts;  // null: all members are on one host
};

/// An all-reduce under way. Every member of a host owns a slice: once all of that host have handed in, it adds that
/// slice of everyone's parts, sums it with its counterparts on other hosts, and writes the sum into everyone's
/// gradients, on the groups' own threads, so that the caller need not wait for it to go on. (The last of a host to hand
/// in may add its slice itself.) What does not lie in shared memory is copied there and back. Started at construction,
/// which waits for nobody; throws what Gloo throws, and what StagingMemory throws. Fault points: handed-in, of the
/// caller; sum, once all of the host have handed in. A rank's next sum over the same groups starts after wait() has
/// returned: Gloo's collectives of a group have one order on all its members.
class SharedSum {
 public:
  /// `gradients` becomes the sum of the parts in the given order, which wants one host; without one, of all members'
  /// `gradients`: those of a host in ascending order, then the hosts' sums in Gloo's. `order` lives until the wait.
  SharedSum(const SumGroups& groups, std::shared_ptr<SumMemory> memory, const at::Tensor& gradients,
            const std::vector<at::Tensor>& parts, const SumOrder* order, std::chrono::milliseconds timeout);
  /// Returns once all members' gradients are the sum. Where a member could not add its slice none of them is: that
  /// member throws why, what MappedPeers throws, and the others throw PeerLostError("another member could not ...").
  /// Throws what Gloo throws where a member is lost.
  void wait();
  /// Has `done` called, on any thread and before wait() returns, when all members' gradients are the sum.
  void call_when_done(std::function<void()> done);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the group's thread, which may outlive a failure
};

}  // namespace chimera
