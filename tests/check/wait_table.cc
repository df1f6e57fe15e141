#include "check/wait_table.h"

#include <algorithm>
#include <random>

namespace chimera::testing {
namespace {

constexpr auto kNever = static_cast<std::size_t>(-1);

bool is_same_tensor(const Op& a, const Op& b) {
  return a.kind == b.kind && a.stage == b.stage && a.micro_batch == b.micro_batch && a.slice == b.slice;
}

/// An instruction that starts one end of a transfer.
struct Entry {
  bool is_send;
  Op tensor;
  std::size_t position;
};

/// Transfers that `worker` starts with `peer`, in order; only of one direction if `is_send` is given.
std::vector<Entry> entries(const Program& program, std::size_t worker, std::size_t peer, const bool* is_send) {
  std::vector<Entry> result;
  const auto& list = program.workers[worker];
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool sends = list[i].kind == InstructionKind::StartSend;
    if (!sends && list[i].kind != InstructionKind::PostReceive) continue;
    if (list[i].peer.index() != peer || (is_send != nullptr && sends != *is_send)) continue;
    result.push_back({sends, list[i].op, i});
  }
  return result;
}

/// Position of the worker's first instruction that satisfies `is_it`, kNever if there is none.
template <class Predicate>
std::size_t position(const Program& program, std::size_t worker, const Predicate& is_it) {
  const auto& list = program.workers[worker];
  const auto found = std::find_if(list.begin(), list.end(), is_it);
  return found == list.end() ? kNever : static_cast<std::size_t>(found - list.begin());
}

}  // namespace

WaitTable::WaitTable(const Program& program, ChannelDiscipline discipline) : needs_(program.workers.size()) {
  for (std::size_t w = 0; w < needs_.size(); ++w) {
    std::size_t sums = 0;  // all-reduces of norms and losses
    for (const Instruction& instruction : program.workers[w]) {
      const bool transfer =
          instruction.kind == InstructionKind::WaitSend || instruction.kind == InstructionKind::WaitReceive;
      needs_[w].push_back(transfer ? of_transfer(program, discipline, w, instruction)
                                   : of_collective(program, instruction, sums));
      sums += instruction.kind == InstructionKind::ReduceScalars;
    }
  }
}

/// Matches the k-th start of one end with the k-th start of the other if all earlier starts agree.
WaitTable::Needs WaitTable::of_transfer(const Program& program, ChannelDiscipline discipline, std::size_t worker,
                                        const Instruction& wait) {
  const bool sends = wait.kind == InstructionKind::WaitSend;
  const bool receives = !sends;
  const bool by_direction = discipline == ChannelDiscipline::PerDirection;
  const auto own = entries(program, worker, wait.peer.index(), by_direction ? &sends : nullptr);
  const auto other = entries(program, wait.peer.index(), worker, by_direction ? &receives : nullptr);
  for (std::size_t k = 0; k < std::min(own.size(), other.size()); ++k) {
    if (own[k].is_send == other[k].is_send || !is_same_tensor(own[k].tensor, other[k].tensor)) break;
    if (own[k].is_send == sends && is_same_tensor(own[k].tensor, wait.op))
      return {{wait.peer.index(), other[k].position + 1}};
  }
  return {{worker, kNever}};
}

WaitTable::Needs WaitTable::of_collective(const Program& program, const Instruction& wait, std::size_t sums_before) {
  Needs needs;
  if (wait.kind == InstructionKind::WaitAllReduce) {
    const auto group = stage_groups(program.placement)[wait.group.index()];
    for (const WorkerId member : group) {
      const std::size_t start = position(program, member.index(), [&](const Instruction& instruction) {
        return instruction.kind == InstructionKind::StartAllReduce && instruction.group == wait.group;
      });
      needs.push_back({member.index(), start == kNever ? kNever : start + 1});
    }
  } else if (wait.kind == InstructionKind::ReduceScalars) {
    for (std::size_t w = 0; w < program.workers.size(); ++w) {
      std::size_t passed = 0;
      needs.push_back({w, position(program, w, [&](const Instruction& instruction) {
                         return instruction.kind == InstructionKind::ReduceScalars && passed++ == sums_before;
                       })});
    }
  }
  return needs;
}

WaitTable::State WaitTable::end() const {
  State state;
  for (const auto& list : needs_) state.push_back(list.size());
  return state;
}

bool WaitTable::can_step(const State& state, std::size_t worker) const {
  if (state[worker] == needs_[worker].size()) return false;
  const auto& needs = needs_[worker][state[worker]];
  return std::all_of(needs.begin(), needs.end(), [&](const Need& need) { return state[need.worker] >= need.done; });
}

std::set<WaitTable::State> final_states(const WaitTable& waits, std::size_t most_states) {
  std::set<WaitTable::State> known = {waits.start()};
  std::set<WaitTable::State> result;
  std::vector<WaitTable::State> to_visit = {waits.start()};
  while (!to_visit.empty()) {
    const WaitTable::State state = to_visit.back();
    to_visit.pop_back();
    bool is_final = true;
    for (std::size_t w = 0; w < state.size(); ++w) {
      if (!waits.can_step(state, w)) continue;
      is_final = false;
      WaitTable::State next = state;
      ++next[w];
      if (known.insert(next).second) to_visit.push_back(next);
    }
    if (is_final) result.insert(state);
    if (known.size() > most_states) return {};
  }
  return result;
}

WaitTable::State final_state(const WaitTable& waits, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  WaitTable::State state = waits.start();
  for (bool moves = true; moves;) {
    moves = false;
    const std::size_t first = random() % state.size();
    for (std::size_t i = 0; i < state.size(); ++i) {
      const std::size_t w = (first + i) % state.size();
      for (std::size_t steps = 1 + random() % 8; steps > 0 && waits.can_step(state, w); --steps) {
        ++state[w];
        moves = true;
      }
    }
  }
  return state;
}

}  // namespace chimera::testing
