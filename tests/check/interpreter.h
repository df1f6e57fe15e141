#pragma once
// A second opinion on schedules and programs, written from their definitions alone: slow, plain, nothing of src/check.

#include <set>
#include <vector>

#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera::testing {

/// Plays the schedule: its ops are all there, each is tried again and again until nothing moves, and every worker keeps
/// the weight versions it may keep.
[[nodiscard]] bool plays(const Schedule& schedule);

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
  std::vector<std::vector<std::vector<Need>>> needs_;  // [worker][instruction]
};

/// Every state in which some interleaving of the workers ends: all of them are tried. Stops and returns none where
/// there are more than `most_states` states.
[[nodiscard]] std::set<WaitTable::State> final_states(const WaitTable& waits, std::size_t most_states);

/// The state in which one interleaving ends, chosen by `seed`.
[[nodiscard]] WaitTable::State final_state(const WaitTable& waits, std::uint64_t seed);

/// Whether the program does all it should, whatever the interleaving: its lists mean something, each worker by itself
/// and all together; started all-reduces cannot block each other; and every interleaving ends at the end (all of them
/// where there are at most `most_states` states, some otherwise).
[[nodiscard]] bool plays(const Program& program, ChannelDiscipline discipline, std::size_t most_states = 2000);

}  // namespace chimera::testing
