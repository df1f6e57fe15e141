#pragma once
// Sums over ranks of one host, formed in memory that all of them map: nothing is sent but word of it.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/shared_memory.h"
#include "schedule/reduction_tree.h"
#include "transport/gloo/group.h"

namespace chimera {

/// Memory of other ranks, mapped once and until the end. For any thread.
class MappedPeers {
 public:
  /// The byte at that address, which lies in a memory file of this host. Throws Error where it cannot be mapped.
  [[nodiscard]] std::byte* at(const SharedAddress& address);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<SharedMemory>> mapped_;  // (process, file)
};

/// A memory file that begins with a random number, by which others know it: the same process id and descriptor may be
/// another process's on their host.
struct MarkedMemory {
  SharedAddress address;
  std::int64_t mark = 0;
};

/// Whose memory this rank can map: [rank].
[[nodiscard]] std::vector<bool> mappable(const std::vector<MarkedMemory>& memories);

/// A sum under way over the members of a group who can all map each other's memory. Every member owns a slice: once all
/// have handed in, it adds that slice of everyone's parts and writes the sum into everyone's gradients, on the group's
/// own thread, so that the caller need not wait for it to go on. What does not lie in shared memory is copied there and
/// back. Started at construction, without blocking; throws what Gloo throws, and what MappedPeers throws.
class SharedSum {
 public:
  /// `gradients` becomes the sum of the parts in the given order; without one, of all members' `gradients` in ascending
  /// order. `order` lives until the wait.
  SharedSum(const GlooGroup& group, std::shared_ptr<MappedPeers> peers, const at::Tensor& gradients,
            const std::vector<at::Tensor>& parts, const SumOrder* order, std::chrono::milliseconds timeout);
  void wait();
  /// Has `done` called, on any thread and before wait() returns, when all members' gradients are the sum.
  void call_when_done(std::function<void()> done);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the group's thread, which may outlive a failure
};

}  // namespace chimera
