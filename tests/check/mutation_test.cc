// Damages schedules and programs at random: check() and an independent interpreter must agree on each.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "check/check_program.h"
#include "check/check_schedule.h"
#include "check/interpreter.h"
#include "passes/lower.h"
#include "passes/unroll.h"
#include "support/schedules.h"

namespace chimera {
namespace {

constexpr ChannelDiscipline kMutatedDisciplines[] = {ChannelDiscipline::PerDirection, ChannelDiscipline::SerialPair};

/// Seeded random numbers, equal on every machine.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }
  std::int64_t id(std::int64_t count) { return static_cast<std::int64_t>(below(static_cast<std::size_t>(count))); }
  bool one_in(std::size_t count) { return below(count) == 0; }

 private:
  std::mt19937_64 random_;
};

/// Damages lists of ops or instructions.
template <class T>
void damage_lists(std::vector<std::vector<T>>& workers, Dice& dice, std::size_t way) {
  auto& list = workers[dice.below(workers.size())];
  if (list.empty()) return;
  const std::size_t i = dice.below(list.size());
  const std::size_t j = dice.below(list.size());
  const auto at = [&](std::size_t k) { return list.begin() + static_cast<std::ptrdiff_t>(k); };
  switch (way) {
    case 0: std::swap(list[i], list[j]); break;
    case 1: std::swap(list[i], list[(i + 1) % list.size()]); break;
    case 2: i < j ? std::rotate(at(i), at(i + 1), at(j + 1)) : std::rotate(at(j), at(i), at(i + 1)); break;
    case 3: list.erase(at(i)); break;
    case 4: list.insert(at(j), T(list[i])); break;
    case 5: {
      auto& other = workers[dice.below(workers.size())];
      const T moved = list[i];
      list.erase(at(i));
      other.insert(other.begin() + static_cast<std::ptrdiff_t>(dice.below(other.size() + 1)), moved);
      break;
    }
    default: std::swap(list, workers[dice.below(workers.size())]); break;
  }
}
constexpr std::size_t kListDamages = 7;

void damage_op(Op& op, const Schedule& schedule, Dice& dice) {
  switch (dice.below(7)) {
    case 4: op.paired = !op.paired; break;
    case 5: op.slice = static_cast<std::int16_t>(dice.id(schedule.slices + 2) - 1); break;
    case 0: op.kind = static_cast<OpKind>(dice.below(kOpKinds)); break;
    case 1: op.stage = StageId(dice.id(schedule.stages + 2) - 1); break;
    case 2: op.micro_batch = MicroBatchId(dice.id(schedule.micro_batches + 2) - 1); break;
    case 3:
      op.replica = ReplicaId(dice.id(static_cast<std::int64_t>(schedule.placement.num_replicas()) + 2) - 1);
      break;
    default: op.weight_version += static_cast<std::int32_t>(dice.below(3)) - 1; break;
  }
}

/// Replaces a B with an I and inserts a W on the worker, mostly after it.
void split_backward(std::vector<Op>& ops, Dice& dice) {
  std::vector<std::size_t> whole;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind == OpKind::Backward) whole.push_back(i);
  }
  if (whole.empty()) return;
  const std::size_t i = whole[dice.below(whole.size())];
  ops[i].kind = OpKind::BackwardInput;
  Op weight = ops[i];
  weight.kind = OpKind::BackwardWeight;
  const std::size_t at = dice.one_in(4) ? dice.below(ops.size() + 1) : i + 1 + dice.below(ops.size() - i);
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(at), weight);
}

/// Replaces the I and W of a micro-batch with a B in the place of either.
void join_backward(std::vector<Op>& ops, Dice& dice) {
  if (ops.empty()) return;
  const Op chosen = ops[dice.below(ops.size())];
  const OpKind gone = dice.one_in(2) ? OpKind::BackwardInput : OpKind::BackwardWeight;
  for (std::size_t i = ops.size(); i-- > 0;) {
    if (ops[i].stage != chosen.stage || ops[i].micro_batch != chosen.micro_batch || ops[i].slice != chosen.slice)
      continue;
    if (ops[i].kind == gone) {
      ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (ops[i].kind != OpKind::Forward) {
      ops[i].kind = OpKind::Backward;
    }
  }
}

/// Exchanges two micro-batches everywhere: harmless within a synchronous replica.
void exchange_micro_batches(Schedule& schedule, Dice& dice) {
  const MicroBatchId a(dice.id(schedule.micro_batches));
  const MicroBatchId b(dice.id(schedule.micro_batches));
  for (auto& ops : schedule.workers) {
    for (Op& op : ops) op.micro_batch = op.micro_batch == a ? b : op.micro_batch == b ? a : op.micro_batch;
  }
}

void damage_placement(Schedule& schedule, Dice& dice) {
  auto& row = schedule.placement.worker_of[dice.below(schedule.placement.num_replicas())];
  auto& worker = row[dice.below(row.size())];
  switch (dice.below(3)) {
    case 0: std::swap(worker, row[dice.below(row.size())]); break;
    case 1: worker = WorkerId(dice.id(static_cast<std::int64_t>(schedule.workers.size()) + 2) - 1); break;
    default: std::swap(row, schedule.placement.worker_of.front()); break;
  }
}

void damage_updates(Schedule& schedule, Dice& dice) {
  if (!schedule.updates) return;
  if (dice.one_in(3)) schedule.updates->delay = dice.one_in(3) ? std::nullopt : std::optional(dice.id(3));
  auto& count = dice.one_in(2) ? schedule.updates->versions : schedule.updates->micro_batches;
  count += dice.id(5) - 2;
}

void damage(Schedule& schedule, Dice& dice) {
  const std::size_t way = dice.below(16);
  auto& ops = schedule.workers[dice.below(schedule.workers.size())];
  if (way < kListDamages) return damage_lists(schedule.workers, dice, way);
  switch (way) {
    case 7:
    case 8:
      if (!ops.empty()) damage_op(ops[dice.below(ops.size())], schedule, dice);
      break;
    case 9:
    case 10: split_backward(ops, dice); break;
    case 11: join_backward(ops, dice); break;
    case 12: exchange_micro_batches(schedule, dice); break;
    case 13: damage_placement(schedule, dice); break;
    case 14: damage_updates(schedule, dice); break;
    default: damage_lists(schedule.workers, dice, 1); break;
  }
}

constexpr std::size_t kInstructionKinds = static_cast<std::size_t>(InstructionKind::Load) + 1;

void damage(Instruction& instruction, const Program& program, Dice& dice) {
  switch (dice.below(9)) {
    case 8: instruction.op.slice = static_cast<std::int16_t>(dice.id(program.slices + 2) - 1); break;
    case 7: instruction.op.paired = !instruction.op.paired; break;
    case 6: instruction.group = ParameterGroupId(dice.id(program.stages + 2) - 1); break;
    case 5: instruction.step += static_cast<std::int32_t>(dice.below(3)) - 1; break;
    case 4: instruction.op.weight_version += static_cast<std::int32_t>(dice.below(3)) - 1; break;
    case 0: instruction.kind = static_cast<InstructionKind>(dice.below(kInstructionKinds)); break;
    case 1: instruction.op.micro_batch = MicroBatchId(dice.id(program.micro_batches + 2) - 1); break;
    case 2: instruction.op.stage = StageId(dice.id(program.stages + 2) - 1); break;
    default: instruction.peer = WorkerId(dice.id(static_cast<std::int64_t>(program.workers.size()) + 2) - 1); break;
  }
}

/// Removes an instruction of a kind.
void drop(Program& program, InstructionKind kind, Dice& dice) {
  auto& list = program.workers[dice.below(program.workers.size())];
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind == kind) places.push_back(i);
  }
  if (!places.empty()) list.erase(list.begin() + static_cast<std::ptrdiff_t>(places[dice.below(places.size())]));
}

void damage(Program& program, Dice& dice) {
  const std::size_t way = dice.below(14);
  if (way < kListDamages) return damage_lists(program.workers, dice, way);
  auto& list = program.workers[dice.below(program.workers.size())];
  if (way < 9 && !list.empty()) return damage(list[dice.below(list.size())], program, dice);
  if (way < 11) return drop(program, static_cast<InstructionKind>(dice.below(kInstructionKinds)), dice);
  damage_lists(program.workers, dice, 1);
}

/// At most ten shapes of a generator, spread over all shapes of up to four stages.
std::vector<PipelineShape> some_shapes(const std::string& name) {
  const auto all = testing::small_shapes(name, 4);
  std::vector<PipelineShape> some;
  const std::size_t step = std::max<std::size_t>(1, all.size() / 10);
  for (std::size_t i = step - 1; i < all.size(); i += step) some.push_back(all[i]);
  return some;
}

struct Verdicts {
  std::size_t harmful = 0;
  std::size_t harmless = 0;
  std::map<std::string, std::size_t> kinds;  // kinds of the first violation

  void count(const std::vector<Violation>& violations) {
    violations.empty() ? ++harmless : ++harmful;
    if (!violations.empty()) ++kinds[to_text(violations.front().kind)];
  }
  void print(const char* what) const {
    std::cout << what << ": " << harmful + harmless << " mutants, " << harmful << " harmful, " << harmless
              << " harmless; first violation:";
    for (const auto& [kind, number] : kinds) std::cout << ' ' << kind << ' ' << number;
    std::cout << '\n';
  }
};

std::string in_words(const std::vector<Violation>& violations) {
  return violations.empty() ? "no violation" : violations.front().message;
}

TEST(MutationTest, CheckAgreesWithTheInterpreterOnSchedules) {
  constexpr std::size_t kMutants = 30'000;
  Verdicts verdicts;
  std::uint64_t seed = 0;
  std::vector<Schedule> originals;
  for (const Generator& generator : generators()) {
    for (const PipelineShape& shape : some_shapes(generator.name)) {
      originals.push_back(generator.generate(shape));
      if (originals.back().updates) originals.push_back(unroll(originals.back(), 3));
    }
  }
  while (verdicts.harmful + verdicts.harmless < kMutants) {
    Dice dice(++seed);
    const Schedule& original = originals[seed % originals.size()];
    Schedule mutant = original;
    for (std::size_t damages = 1 + dice.below(2); damages > 0; --damages) damage(mutant, dice);
    if (mutant == original) continue;
    const auto violations = check(mutant);
    ASSERT_EQ(violations.empty(), testing::plays(mutant))
        << mutant.name << ", seed " << seed << ": " << in_words(violations);
    verdicts.count(violations);
    if (!violations.empty() || seed % 4 != 0) continue;
    for (const ChannelDiscipline discipline : kMutatedDisciplines) {
      for (const Pairs pairs : {Pairs::InOrder, Pairs::Together}) {
        if (pairs == Pairs::Together && !has_pairs(mutant)) continue;
        const Program program = lower(mutant, {.discipline = discipline, .pairs = pairs});
        const auto stuck = check(program, discipline);
        ASSERT_TRUE(stuck.empty()) << mutant.name << ", seed " << seed << ": " << in_words(stuck);
        ASSERT_TRUE(testing::plays(program, discipline)) << mutant.name << ", seed " << seed;
      }
    }
  }
  verdicts.print("schedules");
  EXPECT_GT(verdicts.harmful, kMutants / 4);
  EXPECT_GT(verdicts.harmless, kMutants / 10);
}

TEST(MutationTest, CheckAgreesWithTheInterpreterOnPrograms) {
  constexpr std::size_t kMutants = 10'000;  // per discipline
  for (const ChannelDiscipline discipline : kMutatedDisciplines) {
    Verdicts verdicts;
    std::vector<Program> originals;
    for (const Generator& generator : generators()) {
      for (const PipelineShape& shape : some_shapes(generator.name)) {
        const Schedule schedule = generator.generate(shape);
        std::set<StageId> offload;
        for (std::int64_t s = 0; originals.size() % 3 == 0 && s < schedule.stages; ++s) offload.emplace(s);
        originals.push_back(lower(schedule, {.discipline = discipline, .offload = offload, .pairs = Pairs::Together}));
        if (schedule.updates) {
          const bool sums = originals.size() % 2 == 0;
          originals.push_back(
              lower(unroll(schedule, 3), {.discipline = discipline, .all_reduces = {.every_stage = sums}, .steps = 3}));
        }
        if (originals.size() % 4 == 0) originals.push_back(lower(forward_only(schedule), {.discipline = discipline}));
      }
    }
    for (std::uint64_t seed = 1; verdicts.harmful + verdicts.harmless < kMutants; ++seed) {
      Dice dice(seed);
      const Program& original = originals[seed % originals.size()];
      Program mutant = original;
      damage(mutant, dice);
      if (mutant.workers == original.workers) continue;
      const auto violations = check(mutant, discipline);
      ASSERT_EQ(violations.empty(), testing::plays(mutant, discipline))
          << to_text(discipline) << ", seed " << seed << ": " << in_words(violations);
      verdicts.count(violations);
    }
    verdicts.print(to_text(discipline));
    EXPECT_GT(verdicts.harmful, kMutants / 4);
    EXPECT_GT(verdicts.harmless, kMutants / 10);
  }
}

}  // namespace
}  // namespace chimera
