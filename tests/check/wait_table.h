#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "schedule/program.h"

namespace chimera::testing {

/// The waits of a program without its other semantics: the progress that each instruction needs from other workers.
/// This is enough to try every interleaving of the workers.
class WaitTable {
 public:
  WaitTable(const Program& program, ChannelDiscipline discipline);

  using State = std::vector<std::size_t>;  // [worker]: instructions done
  [[nodiscard]] State start() const { return State(needs_.size(), 0); }
  [[nodiscard]] State end() const;
  [[nodiscard]] bool can_step(const State& state, std::size_t worker) const;

 private:
  /// The first `done` instructions of `worker` come first.
  struct Need {
    std::size_t worker;
    std::size_t done;
  };
  using Needs = std::vector<Need>;
  [[nodiscard]] static Needs of_transfer(const Program& program, ChannelDiscipline discipline, std::size_t worker,
                                         const Instruction& wait);
  [[nodiscard]] static Needs of_collective(const Program& program, const Instruction& wait, std::size_t sums_before);

  std::vector<std::vector<Needs>> needs_;  // [worker][instruction]
};

/// Every state in which an interleaving of the workers can end. Returns an empty set if there are more than
/// `most_states` states.
[[nodiscard]] std::set<WaitTable::State> final_states(const WaitTable& waits, std::size_t most_states);

/// Final state of one interleaving, chosen by `seed`.
[[nodiscard]] WaitTable::State final_state(const WaitTable& waits, std::uint64_t seed);

}  // namespace chimera::testing
