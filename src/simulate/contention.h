#pragma once
// What ops, messages and sums of gradients cost each other, or save, where they run beside each other on one worker.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chimera {

/// Shares by which things take longer than alone; 0 each: they do not disturb each other.
struct Contention {
  double ops_by_sums = 0;  // an op (or an update), while its worker takes part in a sum
  double sums_by_ops = 0;  // a sum, while one of its workers runs an op
  /// A message or a sum, for every other one that leaves the same worker, or comes to it; a sum does both on all of its
  /// workers. The worst end decides. 1: they divide the bandwidth of one network interface evenly.
  double transfers = 0;
  /// The part of a sum's time that is saved while all of its workers have launched another one: the transport has begun
  /// that too, and one's bytes travel while the other's are added. In [0, 1).
  double sums_overlap = 0;

  [[nodiscard]] bool any() const { return ops_by_sums > 0 || sums_by_ops > 0 || transfers > 0 || sums_overlap > 0; }
  friend bool operator==(const Contention&, const Contention&) = default;
};

/// What runs on each worker at the moment, and how much it slows down.
class WorkersInUse {
 public:
  WorkersInUse(const Contention& contention, std::size_t workers) : contention_(contention), in_use_(workers) {}

  void count_op(std::size_t worker, int change) { in_use_[worker].ops += change; }
  void count_message(std::size_t from, std::size_t to, int change) {
    in_use_[from].leaving += change;
    in_use_[to].coming += change;
  }
  void count_sum(std::size_t worker, int change) {
    in_use_[worker].sums += change;
    count_message(worker, worker, change);
  }

  /// How many times as long as alone an op on that worker takes, a message, a sum on one of its workers.
  [[nodiscard]] double op(std::size_t worker) const {
    return in_use_[worker].sums > 0 ? 1 + contention_.ops_by_sums : 1;
  }
  [[nodiscard]] double message(std::size_t from, std::size_t to) const {
    return beside(std::max(in_use_[from].leaving, in_use_[to].coming));
  }
  [[nodiscard]] double sum(std::size_t worker) const {
    const InUse& here = in_use_[worker];
    return beside(std::max(here.leaving, here.coming)) + (here.ops > 0 ? contention_.sums_by_ops : 0);
  }
  /// By what that of a sum is multiplied while the next one is under way too.
  [[nodiscard]] double beside_next_sum() const { return 1 - contention_.sums_overlap; }

 private:
  struct InUse {
    int ops = 0;
    int sums = 0;
    int leaving = 0;  // messages and sums
    int coming = 0;
  };
  [[nodiscard]] double beside(int transfers) const { return 1 + contention_.transfers * (transfers - 1); }

  Contention contention_;
  std::vector<InUse> in_use_;  // [worker]
};

}  // namespace chimera
