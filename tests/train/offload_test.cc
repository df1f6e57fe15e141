// Offloaded activations change no bits.

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "support/training.h"
#include "train/setup/dry_run.h"

namespace chimera {
namespace {

constexpr std::int64_t kOffloadSteps = 2;

void expect_bits_without_offload(const TrainOptions& options, const std::string& what) {
  TrainOptions offloading = options;
  offloading.memory.offload = {StageRule::Full};
  const auto expected = testing::train(options, kOffloadSteps);
  const auto trained = testing::train(offloading, kOffloadSteps);
  EXPECT_EQ(trained.losses, expected.losses) << what;
  EXPECT_EQ(trained.gradient_norms, expected.gradient_norms) << what;
  EXPECT_EQ(trained.parameters_hashes, expected.parameters_hashes) << what;
  for (const auto& [name, copies] : expected.gradients) {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      EXPECT_TRUE(at::equal(trained.gradients.at(name)[i], copies[i])) << what << ": " << name;
    }
  }
}

bool offloads(const TrainOptions& options) {
  const Job job = prepare_job(options);
  return std::ranges::any_of(job.programs.training.workers, [](const auto& program) {
    return std::ranges::find(program, InstructionKind::Offload, &Instruction::kind) != program.end();
  });
}

TEST(OffloadTrainingTest, EveryKindOfBackwardReadsTheSameBits) {
  for (const char* schedule : {"1f1b", "chimera", "chimera-zb"}) {
    TrainOptions options = testing::small_options("gpt2-tiny", schedule, {4, 8});
    expect_bits_without_offload(options, schedule);
    options.memory.recompute = parse_stages(kRecomputeFlag, "0,2");
    expect_bits_without_offload(options, std::string(schedule) + ", two stages recomputed");
    options.memory.offload = {StageRule::Full};
    EXPECT_TRUE(offloads(options)) << schedule;
  }
}

TEST(OffloadTrainingTest, EveryModelAndShapeReadsTheSameBits) {
  TrainOptions bert = testing::small_options("bert-tiny", "chimera", {2, 8});
  bert.model.dropout = 0.1;
  expect_bits_without_offload(bert, "BERT with dropout");
  TrainOptions llama = testing::small_options("llama-tiny", "zb-v", {2, 8});
  llama.memory.recompute = {StageRule::Attention};
  llama.numbers.dtype = DataType::Float32;
  expect_bits_without_offload(llama, "Llama with recomputed attention");
  expect_bits_without_offload(
      testing::small_options("gpt2-tiny", "1f1b", {.stages = 2, .micro_batches = 6, .slices = 2}), "slices");
  TrainOptions pairs = testing::small_options("gpt2-tiny", "dualpipev", {2, 8});
  pairs.schedule.pairs = Pairs::Together;
  pairs.numbers.reduction = ReductionOrder::Canonical;
  expect_bits_without_offload(pairs, "concurrent pairs, canonical");
  TrainOptions tied = testing::small_options("gpt2-tiny", "chimera", {2, 8});
  tied.model.overrides.tied = true;
  tied.numbers.reduction = ReductionOrder::Canonical;
  expect_bits_without_offload(tied, "tied, canonical");
}

TEST(OffloadTrainingTest, AutoOffloadsWhatMemoryRequires) {
  TrainOptions options = testing::small_options("gpt2-tiny", "gpipe", {2, 8});
  options.memory.offload = {StageRule::Auto};
  EXPECT_THROW((void)prepare_job(options), ConfigError) << "without --memory";
  options.memory.gib = 1;
  EXPECT_FALSE(offloads(options)) << "1 GiB is enough";
  const auto peak = [&] {
    const Job job = prepare_job(options);
    return forecast(job, assumed_machine(job, job.options)).peak_bytes();
  };
  const double roomy = peak();
  options.memory.gib = 0.9 * roomy / (1 << 30);
  EXPECT_TRUE(offloads(options));
  EXPECT_LT(peak(), roomy);
  options.memory.gib = 1e-6;
  EXPECT_THROW((void)prepare_job(options), ConfigError);
}

}  // namespace
}  // namespace chimera
