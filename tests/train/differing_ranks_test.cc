
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/paths.h"
#include "support/training.h"
#include "train/setup/job_identity.h"
#include "transport/process.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Ended {
  int exit_code;
  std::string output;
};

/// A job of three ranks; rank 1 differs.
Ended run_differing(const std::string& option) {
  const MemoryFile output("output");
  const int code = await(start({CHIMERA_DIFFERING_RANK, option}, "", output));
  return {code, output.text()};
}

TEST(DifferingRanksTest, NamesTheDifferingRankAndOption) {
  const std::pair<std::string, std::string> cases[] = {
      {"seed", "--seed"}, {"clip and schedule", "--clip and the program"}, {"model", "the model"}};
  for (const auto& [option, named] : cases) {
    const Ended job = run_differing(option);
    EXPECT_EQ(job.exit_code, 2) << option;
    EXPECT_EQ(job.output, "chimera: rank 1 failed at start-up: this rank differs from rank 0 in " + named +
                              "; start every rank from the same program with the same options\n");
  }
}

TEST(DifferingRanksTest, AnotherNumberOfRanksIsRefused) {
  const Ended job = run_differing("groups");
  EXPECT_EQ(job.exit_code, 2);
  EXPECT_EQ(job.output,
            "chimera: rank 1 failed at start-up: this rank's options make a job of 6 ranks, but 3 were started\n");
}

TEST(DifferingRanksTest, OptionsThatChangeNoNumberMayDiffer) {
  const Ended job = run_differing("nothing that matters");
  EXPECT_EQ(job.exit_code, 0) << job.output;
}

/// Fingerprint fields in which two jobs differ.
std::vector<std::string> differences(const TrainOptions& one, const TrainOptions& other) {
  const Fingerprint a = fingerprint(prepare_job(one));
  const Fingerprint b = fingerprint(prepare_job(other));
  std::vector<std::string> names;
  for (std::size_t part = 0; part < a.size(); ++part) {
    if (a[part].hash != b[part].hash) names.push_back(a[part].name);
  }
  return names;
}

TEST(DifferingRanksTest, EachDifferenceHasItsField) {
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {2, 2});
  options.schedule.partition = {PartitionRule::Even};  // A balanced one also depends on other options
  const auto changed = [&](auto change) {
    TrainOptions other = options;
    change(other);
    return differences(options, other);
  };
  EXPECT_THAT(changed([](TrainOptions&) {}), IsEmpty()) << "two calls agree";
  EXPECT_THAT(changed([](TrainOptions& o) { o.memory.recompute = {StageRule::Full}; }), ElementsAre("the program"));
  EXPECT_THAT(changed([](TrainOptions& o) { o.model.overrides.vocabulary = 300; }), ElementsAre("the model"));
  EXPECT_THAT(changed([](TrainOptions& o) { o.numbers.dtype = DataType::Float32; }), ElementsAre("--dtype"));
  EXPECT_THAT(changed([](TrainOptions& o) { o.schedule.partition = parse_partition("3,5"); }),
              ElementsAre("--partition"));
  EXPECT_THAT(changed([](TrainOptions& o) { o.data.micro_batch_size = 1; }), ElementsAre("--micro-batch-size"));
  EXPECT_THAT(changed([](TrainOptions& o) { o.updates.optimizer.decayed = DecayedWeights::All; }),
              ElementsAre("--decay"));
  EXPECT_THAT(changed([](TrainOptions& o) { o.updates.optimizer.beta2 = 0.95; }), ElementsAre("--beta2"));
  EXPECT_THAT(changed([](TrainOptions& o) { o.updates.learning_rate.minimum = 0; }),
              ElementsAre("--min-learning-rate"));
  EXPECT_THAT(changed([](TrainOptions& o) { o.data.training = testing::source_path("/README.md"); }),
              ElementsAre("the data"));
}

}  // namespace
}  // namespace chimera
