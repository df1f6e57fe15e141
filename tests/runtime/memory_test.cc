#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <string>
#include <thread>

#include "generate/registry.h"
#include "measuring/run_memory.h"
#include "model_config/parameters.h"
#include "passes/unroll.h"
#include "runtime/memory_meter.h"

namespace chimera {
namespace {

using benchmarks::BatchSize;
using benchmarks::Exchange;
using benchmarks::StepMemory;

constexpr std::int64_t kStages = 4;
constexpr BatchSize kSize{.sequences = 2, .tokens = 32};

std::vector<StepMemory> measure(const std::string& schedule, std::int64_t micro_batches, Exchange exchange,
                                const LoweringOptions& lowering = {}) {
  const PipelineShape shape{kStages, micro_batches};
  const Schedule generated = find_generator(schedule).generate(shape);
  return benchmarks::measure_step_memory(generated, find_model("gpt2-tiny"), kSize, exchange, lowering);
}

LoweringOptions recomputing_all() {
  LoweringOptions options;
  for (std::int64_t s = 0; s < kStages; ++s) options.recompute.emplace(s);
  return options;
}

LoweringOptions offloading_all() {
  LoweringOptions options;
  options.offload = recomputing_all().recompute;
  return options;
}

/// Bytes of the hidden states in one message.
std::int64_t message_bytes() {
  return kSize.sequences * kSize.tokens * find_model("gpt2-tiny").hidden * static_cast<std::int64_t>(sizeof(float));
}

TEST(MemoryMeterTest, CountsATensorForTheWorkerThatMadeIt) {
  MemoryMeter meter(2);
  at::Tensor tensor;
  std::thread([&] {
    const MemoryMeter::Recording recording(meter, RankId(1));
    tensor = at::empty({256});
  }).join();
  EXPECT_EQ(meter.usage(RankId(1)).live, 1024);
  {
    const MemoryMeter::Recording recording(meter, RankId(0));
    tensor.reset();
  }
  EXPECT_EQ(meter.usage(RankId(1)).live, 0);
  EXPECT_EQ(meter.usage(RankId(1)).peak, 1024);
  EXPECT_EQ(meter.usage(RankId(0)).peak, 0);
}

// Bound on live messages between rank threads, for any timing. A message is the memory of its maker, and sends return
// at once, so the maker is never held back. The activation of a micro-batch lives until the next stage has ended its
// backward. Only then can this stage compute the micro-batch's gradient, which lives until the previous stage has ended
// its backward. So a worker has at most one live message for each micro-batch in flight on it or on the previous stage.
// One more is being computed, which counts as memory of a single micro-batch. If the other workers are fast, no message
// is alive. Over Gloo each rank has its own memory, and the program alone decides when memory is allocated and freed.
class MemoryTest : public ::testing::TestWithParam<Exchange> {};

INSTANTIATE_TEST_SUITE_P(Ranks, MemoryTest, ::testing::Values(Exchange::ByReference, Exchange::OverGloo),
                         [](const auto& instance) {
                           return std::string(instance.param == Exchange::ByReference ? "ByReference" : "OverGloo");
                         });

TEST_P(MemoryTest, PeakDoesNotGrowWithMicroBatches) {
  // A stage's activations of one micro-batch are about 16 messages. At the peak, all messages or none may be alive: D
  // micro-batches in flight for each of Chimera's two stages per worker.
  const std::int64_t slack = 2 * kStages * message_bytes();
  for (const char* schedule : {"1f1b", "chimera"}) {
    const auto few = measure(schedule, 2 * kStages, GetParam());
    const auto many = measure(schedule, 8 * kStages, GetParam());
    for (std::size_t w = 0; w < few.size(); ++w)
      EXPECT_NEAR(many[w].peak_bytes, few[w].peak_bytes, slack) << schedule << ", worker " << w;
  }
}

TEST_P(MemoryTest, PeakOfGPipeGrowsByTheSameForEveryMicroBatch) {
  const auto few = measure("gpipe", 4, GetParam());
  const auto more = measure("gpipe", 8, GetParam());
  const auto many = measure("gpipe", 16, GetParam());
  for (std::size_t w = 0; w < few.size(); ++w) {
    const std::int64_t four = more[w].peak_bytes - few[w].peak_bytes;
    EXPECT_GT(four, few[w].peak_bytes / 2) << "worker " << w;
    EXPECT_NEAR(many[w].peak_bytes - more[w].peak_bytes, 2 * four, 0.1 * four) << "worker " << w;
  }
}

TEST_P(MemoryTest, RecomputationKeepsStageInputsAndOneStagesActivations) {
  // GPipe has all N micro-batches in flight; a single micro-batch needs a stage's activations once.
  constexpr std::int64_t kMicroBatches = 16;
  const auto one = measure("gpipe", 1, GetParam());
  const auto kept = measure("gpipe", kMicroBatches, GetParam());
  const auto recomputed = measure("gpipe", kMicroBatches, GetParam(), recomputing_all());
  // Memory beyond that of one micro-batch. Between threads: one message of each micro-batch, its activation used by the
  // next stage or its gradient used by the previous one (all N gradients of the last stage if the others are slow).
  // Over Gloo: the inputs of all stages but the first, `sends_behind` messages in flight to each neighbor, and
  // `receives_ahead` posted.
  const std::int64_t under_way = 2 * LoweringOptions().sends_behind + LoweringOptions().receives_ahead;
  const bool over_gloo = GetParam() == Exchange::OverGloo;
  constexpr std::int64_t kNumbers = 64 * kMicroBatches;  // bytes of losses and the like
  for (std::size_t w = 0; w < one.size(); ++w) {
    const std::int64_t messages = (over_gloo && w == 0 ? 0 : kMicroBatches) + (over_gloo ? under_way : 0);
    EXPECT_LE(recomputed[w].peak_bytes, one[w].peak_bytes + messages * message_bytes() + kNumbers) << "worker " << w;
    EXPECT_GT(kept[w].peak_bytes, kMicroBatches / 2 * one[w].peak_bytes) << "worker " << w;
  }
}

TEST_P(MemoryTest, OffloadingKeepsStageInputsAndOutputsAndThreeMicroBatches) {
  // On the device: the running forward, the next backward's activations, which are loaded before the op that precedes
  // it, and its own. All micro-batches keep the input and output of the stage.
  constexpr std::int64_t kMicroBatches = 16;
  const auto one = measure("gpipe", 1, GetParam());
  const auto kept = measure("gpipe", kMicroBatches, GetParam());
  const auto offloaded = measure("gpipe", kMicroBatches, GetParam(), offloading_all());
  const std::int64_t under_way = 2 * LoweringOptions().sends_behind + LoweringOptions().receives_ahead;
  const std::int64_t messages = 2 * kMicroBatches + under_way;
  for (std::size_t w = 0; w + 1 < one.size(); ++w) {  // the last stage also keeps what the loss needs
    EXPECT_LE(offloaded[w].peak_bytes, 3 * one[w].peak_bytes + messages * message_bytes()) << "worker " << w;
    EXPECT_LT(offloaded[w].peak_bytes, kept[w].peak_bytes / 2) << "worker " << w;
  }
}

TEST_P(MemoryTest, NothingOutlivesTheStep) {
  // Gloo's thread keeps the few numbers of its last all-reduce until the next.
  const std::int64_t slack = GetParam() == Exchange::ByReference ? 0 : 1024;
  for (const LoweringOptions& lowering : {LoweringOptions(), recomputing_all(), offloading_all()}) {
    for (const StepMemory& worker : measure("chimera", kStages, GetParam(), lowering))
      EXPECT_LE(worker.after_bytes, slack);
  }
}

TEST(StepMemoryTest, AsynchronousSchedulesKeepTheSimulatedWeightVersions) {
  const ModelConfig model = find_model("gpt2-tiny");
  const auto partition = even_partition(model.layers, kStages);
  const auto copies = [&](const char* name, std::int64_t micro_batches) {
    constexpr std::int64_t kSteps = 3;
    const Schedule step = find_generator(name).generate({kStages, micro_batches});
    LoweringOptions lowering;
    lowering.steps = kSteps;
    const auto memory =
        benchmarks::measure_step_memory(unroll(step, kSteps), model, kSize, Exchange::ByReference, lowering);
    std::vector<double> result;  // live memory after the run, in weights of the stage, without the first version
    for (std::size_t w = 0; w < memory.size(); ++w) {
      const auto weight_bytes = parameter_count(model, partition[w]) * static_cast<std::int64_t>(sizeof(float));
      result.push_back(static_cast<double>(memory[w].after_bytes) / static_cast<double>(weight_bytes));
    }
    return result;
  };
  EXPECT_EQ(copies("pipedream", 8), (std::vector<double>{3, 2, 1, 0}));
  EXPECT_EQ(copies("pipedream", 2), (std::vector<double>{3, 2, 1, 0})) << "however short the step";
  EXPECT_EQ(copies("pipedream-2bw", 8), (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(copies("1f1b", 8), (std::vector<double>{0, 0, 0, 0}));
}

TEST(StepMemoryTest, OneUnitNeedsAsMuchAsEight) {
  const std::int64_t slack = 2 * kStages * message_bytes();  // of the messages, as above
  for (const char* schedule : {"1f1b", "chimera"}) {
    const auto one = measure(schedule, kStages, Exchange::ByReference);
    const auto eight = measure(schedule, 8 * kStages, Exchange::ByReference);
    for (std::size_t w = 0; w < one.size(); ++w)
      EXPECT_NEAR(eight[w].peak_bytes, one[w].peak_bytes, slack) << schedule << ", worker " << w;
  }
}

}  // namespace
}  // namespace chimera
