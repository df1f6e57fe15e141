#include "passes/unroll.h"

#include <gtest/gtest.h>

#include "check/check_program.h"
#include "core/error.h"
#include "generate/registry.h"

namespace chimera {
namespace {

Schedule step_of(const char* name, std::int64_t stages, std::int64_t micro_batches) {
  return find_generator(name).generate({stages, micro_batches});
}

/// All pieces of a worker, concatenated.
std::vector<Instruction> joined(const ContinuousProgram& stream, std::size_t worker, std::int64_t first = 0) {
  std::vector<Instruction> all;
  for (std::int64_t step = 0; step < stream.steps; ++step) {
    const auto piece = stream.piece(worker, step, first);
    all.insert(all.end(), piece.begin(), piece.end());
  }
  return all;
}

TEST(StreamTest, PiecesAddUpToTheProgramOfTheWholeRun) {
  constexpr std::int64_t kSteps = 37;
  for (const char* name : {"pipedream", "pipedream-2bw"}) {
    for (const std::int64_t d : {1, 2, 3, 4, 8}) {
      for (const std::int64_t n : {1, 2, 3, 4, 5, 8, 12, 16}) {
        if (std::string(name) == "pipedream-2bw" && n < d) continue;
        LoweringOptions options;
        options.all_reduces.every_stage = d == 2;
        if (d == 3) options.recompute = {StageId(0), StageId(1)};
        const Schedule step = step_of(name, d, n);
        const ContinuousProgram stream = lower_continuous(step, kSteps, options);
        EXPECT_LT(stream.program.steps, kSteps) << name << " never repeats itself, D = " << d << ", N = " << n;
        options.steps = kSteps;
        const Program whole = lower(unroll(step, kSteps), options);
        EXPECT_TRUE(check(whole, ChannelDiscipline::PerDirection).empty());
        for (std::size_t w = 0; w < whole.workers.size(); ++w)
          ASSERT_TRUE(joined(stream, w) == whole.workers[w]) << name << ", D = " << d << ", N = " << n;
      }
    }
  }
}

TEST(StreamTest, AShortRunIsComplete) {
  for (const std::int64_t steps : {1, 2, 3}) {
    const Schedule step = step_of("pipedream", 4, 4);
    const ContinuousProgram stream = lower_continuous(step, steps, {});
    LoweringOptions options;
    options.steps = steps;
    const Program whole = lower(unroll(step, steps), options);
    for (std::size_t w = 0; w < 4; ++w) EXPECT_TRUE(joined(stream, w) == whole.workers[w]);
  }
}

TEST(StreamTest, ALaterRunContinuesTheCount) {
  const ContinuousProgram stream = lower_continuous(step_of("pipedream", 2, 3), 2, {});
  const auto now = joined(stream, 0);
  const auto later = joined(stream, 0, 5);
  ASSERT_EQ(later.size(), now.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    EXPECT_EQ(later[i].step, now[i].step + (now[i].kind == InstructionKind::ReduceScalars ? 5 : 0));
    if (!names_an_op(now[i].kind)) continue;
    EXPECT_EQ(later[i].op.micro_batch.value(), now[i].op.micro_batch.value() + 15);
    EXPECT_EQ(later[i].op.weight_version, now[i].op.weight_version + 15);
  }
}

TEST(StreamTest, NothingDrainsBetweenSteps) {
  // Worker 0 runs forwards of the next step between backwards of this step.
  const ContinuousProgram stream = lower_continuous(step_of("pipedream-2bw", 2, 2), 2, {});
  std::string ops;
  for (const Instruction& instruction : stream.piece(0, 0)) {
    if (instruction.kind == InstructionKind::Compute) ops += to_text(instruction.op) + " ";
  }
  EXPECT_EQ(ops, "0F0 0F1 0B0 0F2 0B1 ");
}

TEST(StreamTest, RefusesUpdatesThatCrossSteps) {
  Schedule step = step_of("pipedream-2bw", 2, 4);
  step.updates->micro_batches = 3;
  EXPECT_THROW((void)lower_continuous(step, 2, {}), ConfigError);
}

}  // namespace
}  // namespace chimera
