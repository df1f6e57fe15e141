#pragma once
// The waits of a program and nothing else: enough to try every interleaving of its workers.

#include <cstdint>
#include <set>
#include <vector>

#include "schedule/program.h"

namespace chimera::testing {

/// The waits of a program, without its meaning: for each instruction, what others must have done before it.
class WaitTable {
 public:
  WaitTable(const Program& program, ChannelDiscipline discipline);

  using State = std::vector<std::size_t>;  // [worker]: instructions done
  [[nodiscard]] State start() const { return State(needs_.size(), 0); }
  [[nodiscard]] State end() const;
  [[nodiscard]] bool can_step(const State& state, std::size_t worker) const;

 private:
  /// `done` instructions of `worker` come before.
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

/// Every state in which some interleaving of the workers ends: all of them are tried. Stops and returns none where
/// there are more than `most_states` states.
[[nodiscard]] std::set<WaitTable::State> final_states(const WaitTable& waits, std::size_t most_states);

/// The state in which one interleaving ends, chosen by `seed`.
[[nodiscard]] WaitTable::State final_state(const WaitTable& waits, std::uint64_t seed);

}  // namespace chimera::testing
