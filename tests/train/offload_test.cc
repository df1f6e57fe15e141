// Offloaded activations change no bits.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "runtime/memory_meter.h"
#include "support/training.h"
#include "train/loop/run.h"
#include "train/loop/trainer.h"
#include "train/setup/dry_run.h"

namespace chimera {
namespace {

constexpr std::int64_t kOffloadSteps = 2;

void expect_bits_without_offload(const TrainOptions& options, const std::string& what, const char* offload = "full") {
  TrainOptions offloading = options;
  offloading.memory.offload = parse_stages(kOffloadFlag, offload);
  const auto expected = testing::train(options, kOffloadSteps);
  const auto trained = testing::train(offloading, kOffloadSteps);
  EXPECT_EQ(trained.losses, expected.losses) << what;
  EXPECT_EQ(trained.gradient_norms, expected.gradient_norms) << what;
  EXPECT_EQ(trained.parameters_hashes, expected.parameters_hashes) << what;
  for (const auto& [name, copies] : expected.gradients) {
    for (std::size_t i = 0; i < copies.size(); ++i)
      EXPECT_TRUE(at::equal(trained.gradients.at(name)[i], copies[i])) << what << ": " << name;
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
  for (const char* text : {"cheap", "full:1"}) {
    llama.memory.recompute = parse_stages(kRecomputeFlag, text);
    expect_bits_without_offload(llama, std::string("Llama with recomputed blocks, ") + text);
  }
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

TEST(OffloadTrainingTest, BlocksReadTheSameBits) {
  for (const char* model : {"gpt2-tiny", "bert-tiny", "llama-tiny"}) {
    for (const char* recompute : {"none", "cheap", "full:1", "0"}) {
      TrainOptions options = testing::small_options(model, "chimera-zb", {2, 8});
      options.memory.recompute = parse_stages(kRecomputeFlag, recompute);
      expect_bits_without_offload(options, std::string(model) + ", recompute " + recompute, "full:1");
    }
  }
  expect_bits_without_offload(
      testing::small_options("gpt2-tiny", "1f1b", {.stages = 2, .micro_batches = 6, .slices = 2}), "slices",
      "full:1,1");
  TrainOptions split = testing::small_options("llama-tiny", "1f1b", {2, 8});
  split.parallel.tensor_parallel = 2;
  expect_bits_without_offload(split, "T = 2", "full:1,0");
}

TEST(OffloadTrainingTest, BlocksThatStayTakeTheirBytes) {
  TrainOptions options = testing::small_options("llama-tiny", "gpipe", {.stages = 2, .micro_batches = 8});
  options.numbers.dtype = DataType::Float32;
  options.data.micro_batch_size = 4;
  options.data.sequence = 64;
  // Peak bytes of the first rank's tensors, and the forecast's.
  const auto peak = [&](const char* offload) {
    options.memory.offload = parse_stages(kOffloadFlag, offload);
    const Job job = prepare_job(options);
    MemoryMeter meter(2);
    run_rank_threads(2, job.rank_groups(), [&](RankId rank, Transport& transport) {
      at::set_num_threads(1);
      const MemoryMeter::Recording recording(meter, rank);
      Trainer trainer(job, rank, transport);
      (void)trainer.train_step(0);
    });
    return std::pair(static_cast<double>(meter.usage(RankId(0)).peak),
                     forecast(job, assumed_machine(job, options, 1e10)).ranks.front().peak_memory_bytes);
  };
  const double block = layer_footprint(prepare_job(options).model, LayerKind::Block, workload_of(options)).activations;
  const auto [least, least_planned] = peak("full");
  for (const auto& [offload, stay] : {std::pair{"full:3,3", 1}, {"full:1,1", 3}}) {
    const auto [measured, planned] = peak(offload);
    // Of 8 micro-batches, two have all blocks on the device. The plan counts one more that is leaving.
    EXPECT_NEAR(measured - least, 6 * stay * block, 0.01 * block) << offload;
    EXPECT_NEAR(planned - least_planned, 5 * stay * block, 0.01 * block) << offload;
  }
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
  EXPECT_EQ(to_text(prepare_job(options).stages.offload_blocks), "full:1,2") << "of 4 blocks each";
  options.memory.gib = 1e-6;
  EXPECT_THROW((void)prepare_job(options), ConfigError);
}

}  // namespace
}  // namespace chimera
