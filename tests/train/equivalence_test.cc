// The central property: loss and every parameter's gradient equal those of the unpipelined model for every schedule.
//
// Tolerance: float64 has 16 digits; another order of summation over micro-batches and replicas costs a few of the last
// ones.

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "core/error.h"
#include "generate/registry.h"
#include "support/schedules.h"
#include "support/training.h"

namespace chimera {
namespace {

struct Case {
  std::string model;
  std::string schedule;
  PipelineShape shape;
};

std::string name_of(const Case& c) {
  std::string name = c.model + "_" + testing::describe(c.schedule, c.shape);
  std::replace_if(
      name.begin(), name.end(), [](char letter) { return std::isalnum(letter) == 0; }, '_');
  return name;
}

void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

constexpr std::int64_t kLayers = 8;

/// Every synchronous schedule with all its flags at D = 2, 4 and 8, if the model has enough layers; N below, at and
/// above the schedule's natural number.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* model : {"gpt2-tiny", "bert-tiny", "llama-tiny"}) {
    for (const Generator& generator : generators()) {
      for (const std::int64_t d : {2, 4, 8}) {
        for (const std::int64_t n : std::set<std::int64_t>{1, d - 1, d, 2 * d}) {
          if (std::string(model) != "gpt2-tiny" && n != 2 * d) continue;  // schedules matter more than models here
          if (std::string(model) == "llama-tiny" && d != 4) continue;
          for (const PipelineShape& shape : testing::with_flags(generator, {d, n})) {
            try {
              const Schedule schedule = generator.generate(shape);
              if (schedule.updates || schedule.stages > kLayers) continue;
              if (schedule.slices > 1 && std::string(model) == "bert-tiny") continue;  // not causal
              all.push_back({model, generator.name, shape});
            } catch (const ConfigError&) {  // no such schedule
            }
          }
        }
      }
    }
  }
  return all;
}

/// The unpipelined model on the same micro-batches.
TrainOptions reference_of(TrainOptions options, const Schedule& schedule) {
  // Half-size micro-batches become ordinary micro-batches of half the size.
  options.data.micro_batch_size =
      std::llround(static_cast<double>(options.data.micro_batch_size) * schedule.micro_batch_scale);
  options.schedule.shape.micro_batches = schedule.micro_batches;
  options.schedule.shape.slices = 1;
  return options;
}

/// One step of the reference. Cases with equal micro-batches share it.
const testing::Trained& reference_step(const TrainOptions& options) {
  static std::map<std::tuple<std::string, std::int64_t, std::int64_t>, testing::Trained> steps;
  const auto [step, is_new] =
      steps.try_emplace({options.model.name, options.data.micro_batch_size, options.schedule.shape.micro_batches});
  if (is_new) step->second = testing::train_unpipelined(options, 1);
  return step->second;
}

class EquivalenceTest : public ::testing::TestWithParam<Case> {};

TEST_P(EquivalenceTest, LossAndGradientsAreThoseOfTheUnpipelinedModel) {
  const TrainOptions options = testing::small_options(GetParam().model, GetParam().schedule, GetParam().shape);
  const Schedule schedule = find_generator(GetParam().schedule).generate(GetParam().shape);
  const auto pipelined = testing::train(options, 1);
  const testing::Trained& reference = reference_step(reference_of(options, schedule));
  testing::expect_gradients(pipelined, reference, schedule.placement.num_replicas());
}

INSTANTIATE_TEST_SUITE_P(Schedules, EquivalenceTest, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return name_of(tested.param); });

class TwentyStepsTest : public ::testing::TestWithParam<Case> {};

TEST_P(TwentyStepsTest, LossesAreThoseOfTheUnpipelinedModel) {
  TrainOptions options = testing::small_options(GetParam().model, GetParam().schedule, GetParam().shape);
  options.updates.clip = 0.5;  // clips from the first step
  options.updates.learning_rate.peak = 0.01;
  options.updates.learning_rate.warmup = 5;
  options.data.validate_every = 20;
  const auto pipelined = testing::train(options, 20);
  const auto reference = testing::train_unpipelined(options, 20);
  testing::expect_losses(pipelined, reference);
  EXPECT_LT(reference.losses.back(), 0.9 * reference.losses.front()) << "it does not learn";
  testing::expect_equal_copies(pipelined);
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, TwentyStepsTest,
    ::testing::Values(Case{"gpt2-tiny", "gpipe", {4, 4, 2}}, Case{"gpt2-tiny", "1f1b", {4, 8, 2}},
                      Case{"gpt2-tiny", "chimera", {2, 2, 2}}, Case{"gpt2-tiny", "chimera", {4, 8, 2}},
                      Case{"gpt2-tiny", "chimera", {8, 8, 4}}, Case{"bert-tiny", "chimera", {4, 4, 4}},
                      Case{"bert-tiny", "1f1b", {4, 5, 2}}, Case{"llama-tiny", "chimera", {4, 4, 2}}),
    [](const auto& tested) { return name_of(tested.param); });

TEST(SyncTest, WhenGradientsAreSummedDoesNotChangeThem) {
  const auto train_with = [](AllReducePlacement sync) {
    TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 8, 4});
    options.schedule.sync = sync;
    return testing::train(options, 2);
  };
  const auto post = train_with(AllReducePlacement::Post);
  for (const AllReducePlacement sync : {AllReducePlacement::Eager, AllReducePlacement::EagerOpt}) {
    const auto early = train_with(sync);
    EXPECT_EQ(early.losses, post.losses) << to_text(sync);
    for (const auto& [name, copies] : post.parameters)
      EXPECT_TRUE(at::equal(early.parameters.at(name)[0], copies[0])) << to_text(sync) << ": " << name;
  }
}

TEST(SyncTest, JobStartsSumsAtTheGivenPoint) {
  const auto stage_2_of_worker_1 = [](AllReducePlacement sync) {
    TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 4});
    options.schedule.sync = sync;
    const Job job = prepare_job(options);
    std::string before;  // text of the op
    for (const Instruction& instruction : job.programs.training.workers[1]) {
      if (instruction.kind == InstructionKind::Compute) before = to_text(instruction.op);
      if (instruction.kind == InstructionKind::StartAllReduce && instruction.group == parameters_of(StageId(2)))
        return before;
    }
    return std::string("none");
  };
  EXPECT_EQ(stage_2_of_worker_1(AllReducePlacement::Eager), "2B3");
  EXPECT_EQ(stage_2_of_worker_1(AllReducePlacement::EagerOpt), "1B1") << "no bubble follows";
  EXPECT_EQ(stage_2_of_worker_1(AllReducePlacement::Post), "1B1");
}

}  // namespace
}  // namespace chimera
