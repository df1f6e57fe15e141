// The product agrees with the oracle, a plain training loop that shares no code with it: losses, gradient norms,
// learning rates, validation losses and parameters.
//
// Tolerance: float64 has 16 digits. The oracle adds in another order and computes layers by other formulas, which costs
// a few of the last digits. AdamW divides a gradient by its size + 1e-8. So rounding of a mathematically zero gradient,
// about 1e-17, moves a weight by up to the learning rate times 1e-9 per step.

#include "oracle/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <ostream>

#include "multiprocess/training.h"
#include "support/training.h"

namespace chimera {
namespace {

using ::testing::Each;
using ::testing::Gt;

constexpr double kTolerance = 1e-11;

/// So short that the third epoch begins within five steps, and that validation repeats several times.
const std::string& short_text() {
  static const std::string text = testing::sample_text().substr(0, 1600);
  return text;
}

/// Recipes for both sides: small models, other values as uneven as possible.
enum class Trained { Gpt2, Bert, LongText, Tied, LargeVocabulary, Llama, OtherFlags, AllDecay, Lamb };

oracle::Recipe recipe_of(Trained trained) {
  const oracle::Architecture bert = {.family = oracle::Family::Bert, .vocabulary = 260, .positions = 512};
  oracle::Recipe recipe;
  recipe.text = short_text();
  switch (trained) {
    case Trained::Gpt2: break;
    case Trained::Bert: recipe.architecture = bert; break;
    case Trained::LongText:  // more validation samples than a validation uses
      recipe.architecture = bert;
      recipe.architecture.tied = true;
      recipe.text = testing::sample_text() + testing::sample_text() + testing::sample_text() + testing::sample_text();
      recipe.sequence = 17;
      break;
    case Trained::Tied: recipe.architecture.tied = true; break;
    case Trained::Llama: recipe.architecture.family = oracle::Family::Llama; break;
    case Trained::OtherFlags:
      recipe.architecture.tied = true;
      recipe.decay = oracle::Decay::NoEmbeddings;
      recipe.weight_decay = 0.5;
      recipe.beta1 = 0.8;
      recipe.beta2 = 0.95;
      recipe.epsilon = 1e-4;
      recipe.minimum = 0.004;
      break;
    case Trained::AllDecay:
      recipe.architecture = bert;
      recipe.decay = oracle::Decay::All;
      recipe.weight_decay = 0.5;
      break;
    case Trained::Lamb:
      recipe.architecture = bert;
      recipe.architecture.tied = true;
      recipe.optimizer = oracle::Optimizer::Lamb;
      recipe.weight_decay = 0.5;
      recipe.epsilon = 1e-6;
      break;
    case Trained::LargeVocabulary:
      recipe.architecture = {.layers = 2, .hidden = 8, .vocabulary = 50'257};
      recipe.sequence = 8;
      recipe.samples = 4;
      recipe.steps = 2;
      break;
  }
  return recipe;
}

const oracle::Course& course_of(Trained trained) {
  static std::map<Trained, oracle::Course> courses;
  const auto [course, is_new] = courses.try_emplace(trained);
  if (is_new) course->second = oracle::train(recipe_of(trained));
  return course->second;
}

/// The product's layout. N W b is the recipe's mini-batch.
struct Case {
  Trained trained;
  std::string schedule;
  PipelineShape shape;
  std::int64_t data_parallel = 1;
  ReductionOrder reduction = ReductionOrder::Natural;
  std::string partition = "even";
};

std::string name_of(const Case& c) {
  static const std::map<Trained, std::string> kNames = {{Trained::Gpt2, "gpt2"},
                                                        {Trained::Bert, "bert"},
                                                        {Trained::LongText, "bert long text"},
                                                        {Trained::Tied, "tied gpt2"},
                                                        {Trained::LargeVocabulary, "vocabulary of 50257"},
                                                        {Trained::Llama, "llama"},
                                                        {Trained::OtherFlags, "tied gpt2 other flags"},
                                                        {Trained::AllDecay, "bert all decay"},
                                                        {Trained::Lamb, "tied bert lamb"}};
  std::string name = kNames.at(c.trained) + " " + c.schedule + " D" + std::to_string(c.shape.stages) + " W" +
                     std::to_string(c.data_parallel) + " " + to_text(c.reduction) + " " + c.partition;
  std::replace_if(
      name.begin(), name.end(), [](char letter) { return std::isalnum(letter) == 0; }, '_');
  return name;
}

void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

TrainOptions options_of(const Case& c, const std::string& data) {
  const oracle::Recipe recipe = recipe_of(c.trained);
  TrainOptions options;
  static const std::map<oracle::Family, std::string> kModels = {
      {oracle::Family::Gpt2, "gpt2-tiny"}, {oracle::Family::Bert, "bert-tiny"}, {oracle::Family::Llama, "llama-tiny"}};
  options.model.name = kModels.at(recipe.architecture.family);
  options.model.overrides = {.layers = recipe.architecture.layers,
                             .hidden = recipe.architecture.hidden,
                             .heads = recipe.architecture.heads,
                             .vocabulary = recipe.architecture.vocabulary,
                             .tied = recipe.architecture.tied};
  if (recipe.architecture.family == oracle::Family::Llama)
    options.model.overrides.key_value_heads = recipe.architecture.key_value_heads;
  options.data.training = data;
  options.schedule.name = c.schedule;
  options.schedule.shape = c.shape;
  options.parallel.data_parallel = c.data_parallel;
  options.numbers.reduction = c.reduction;
  options.schedule.partition = parse_partition(c.partition);
  options.data.micro_batch_size = recipe.samples / (c.shape.micro_batches * c.data_parallel);
  options.data.sequence = recipe.sequence;
  options.updates.steps = recipe.steps;
  options.numbers.dtype = DataType::Float64;
  options.updates.learning_rate = {.peak = recipe.learning_rate, .warmup = recipe.warmup};
  if (recipe.minimum != recipe.learning_rate / 10) options.updates.learning_rate.minimum = recipe.minimum;
  const bool is_lamb = recipe.optimizer == oracle::Optimizer::Lamb;
  options.updates.optimizer = {.kind = is_lamb ? OptimizerKind::Lamb : OptimizerKind::AdamW,
                               .weight_decay = recipe.weight_decay,
                               .decayed = static_cast<DecayedWeights>(recipe.decay),
                               .beta1 = recipe.beta1,
                               .beta2 = recipe.beta2,
                               .epsilon = recipe.epsilon};
  options.updates.clip = recipe.clip;
  options.device.threads = 1;
  options.data.validate_every = recipe.steps;
  return options;
}

class OracleTest : public ::testing::TestWithParam<Case> {};

TEST_P(OracleTest, TrainsAsThePlainLoop) {
  const oracle::Course& expected = course_of(GetParam().trained);
  const testing::Scratch scratch;
  const std::string data = scratch.write("text.txt", recipe_of(GetParam().trained).text);
  const auto actual = testing::train(options_of(GetParam(), data), recipe_of(GetParam().trained).steps);
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], kTolerance * expected.losses[step]) << step + 1;
    EXPECT_NEAR(actual.gradient_norms[step], expected.gradient_norms[step], kTolerance * expected.gradient_norms[step])
        << step + 1;
  }
  EXPECT_NEAR(actual.validation_losses.at(0), expected.validation_losses.back(),
              kTolerance * expected.validation_losses.back());
  ASSERT_EQ(actual.parameters.size(), expected.weights.size());
  for (const auto& [name, weight] : expected.weights) {
    for (const at::Tensor& copy : actual.parameters.at(name))
      EXPECT_LE((copy - weight).abs().max().item<double>(), kTolerance) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    , OracleTest,
    ::testing::Values(Case{Trained::Gpt2, "none", {1, 4}}, Case{Trained::Gpt2, "chimera", {4, 4}},
                      Case{Trained::Gpt2, "zb-h1", {4, 8}}, Case{Trained::Gpt2, "interleaved-1f1b", {2, 4, 2, 2}},
                      Case{Trained::Bert, "none", {1, 4}}, Case{Trained::Bert, "chimera", {4, 4, 4}},
                      Case{Trained::Bert, "zb-h1", {4, 8}}, Case{Trained::Bert, "interleaved-1f1b", {2, 4, 2, 2}},
                      Case{Trained::Bert, "chimera", {4, 4}, 2, ReductionOrder::Canonical, "3,1,1,3"},
                      Case{Trained::LongText, "chimera", {2, 8}}, Case{Trained::Tied, "1f1b", {2, 4}, 2},
                      Case{Trained::LargeVocabulary, "chimera", {2, 4}}, Case{Trained::Llama, "none", {1, 4}},
                      Case{Trained::Llama, "zb-h1", {4, 8}}, Case{Trained::OtherFlags, "none", {1, 4}},
                      Case{Trained::OtherFlags, "chimera", {4, 4}}, Case{Trained::AllDecay, "1f1b", {2, 4}},
                      Case{Trained::Lamb, "none", {1, 4}}, Case{Trained::Lamb, "zb-h1", {4, 8}},
                      Case{Trained::Lamb, "chimera", {4, 4}, 2, ReductionOrder::Canonical, "3,1,1,3"}),
    [](const auto& tested) { return name_of(tested.param); });

/// The recipes exercise clipping, warmup and learning.
TEST(OracleRecipeTest, ClipsWarmsUpAndLearns) {
  for (const Trained trained : {Trained::Gpt2, Trained::Bert}) {
    const oracle::Course& course = course_of(trained);
    EXPECT_THAT(course.gradient_norms, Each(Gt(recipe_of(trained).clip)));
    EXPECT_LT(course.learning_rates[0], course.learning_rates[1]);
    EXPECT_GT(course.learning_rates[2], course.learning_rates[3]);
    EXPECT_LT(course.losses.back(), course.losses.front());
  }
}

/// Starts a new process, not a fork: this process has computed, and a fork lacks OpenMP's threads.
testing::ProgramResult start_program(const testing::Words& arguments) { return testing::ProgramRun(arguments).wait(); }

/// Passes the recipe of OtherFlags as command-line flags.
TEST(OracleProgramTest, TakesTheOptimizersFlags) {
  const oracle::Recipe recipe = recipe_of(Trained::OtherFlags);
  const oracle::Course& expected = course_of(Trained::OtherFlags);
  const testing::Scratch scratch;
  testing::succeeded(start_program(testing::split(
      "train --data {} --metrics {} --model gpt2-tiny --layers 8 --hidden 16 --heads 2 --dtype float64 --tied true "
      "--schedule none --micro-batches 4 --sequence 24 --steps 5 --warmup 2 --learning-rate 0.01 --min-learning-rate "
      "0.004 --clip 0.5 --weight-decay 0.5 --decay no-embeddings --beta1 0.8 --beta2 0.95 --epsilon 1e-4",
      scratch.write("text.txt", recipe.text), scratch.path("metrics"))));
  const auto steps = testing::read_metrics(scratch.path("metrics"));
  ASSERT_EQ(steps.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(steps[i].at("loss").get<double>(), expected.losses[i], kTolerance * expected.losses[i]) << i + 1;
    EXPECT_NEAR(steps[i].at("learning_rate").get<double>(), expected.learning_rates[i], 1e-17) << i + 1;
  }
}

/// The program as eight processes: two groups, each with two pipelines down and two up.
TEST(OracleProgramTest, WritesTheNumbersOfThePlainLoop) {
  const oracle::Recipe recipe = recipe_of(Trained::Bert);
  const oracle::Course& expected = course_of(Trained::Bert);
  const testing::Scratch scratch;
  testing::succeeded(start_program(
      testing::split("train --data {} --metrics {} --model bert-tiny --layers 8 --hidden 16 --heads 2 --dtype float64 "
                     "--stages 4 --pipelines 4 --data-parallel 2 --partition 3,1,1,3 --micro-batches 4 "
                     "--micro-batch-size 2 --sequence 24 --reduction canonical --steps 5 --validate-every 2 --warmup 2 "
                     "--learning-rate 0.01 --weight-decay 0.01 --clip 0.5",
                     scratch.write("text.txt", recipe.text), scratch.path("metrics"))));
  const auto steps = testing::read_metrics(scratch.path("metrics"));
  ASSERT_EQ(steps.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    const auto expect = [&](const char* field, double value) {
      EXPECT_NEAR(steps[i].at(field).get<double>(), value, kTolerance * value) << field << " of step " << i + 1;
    };
    expect("loss", expected.losses[i]);
    expect("grad_norm", expected.gradient_norms[i]);
    expect("learning_rate", expected.learning_rates[i]);
    const bool validates = i == 1 || i == 3 || i == 4;
    ASSERT_EQ(steps[i].contains("validation_loss"), validates) << i + 1;
    if (validates) expect("validation_loss", expected.validation_losses[i]);
  }
}

}  // namespace
}  // namespace chimera
