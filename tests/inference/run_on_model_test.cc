// `generate` and `evaluate` beside a job that removes checkpoints.

#include "run_on_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "checkpoint/sample_checkpoint.h"
#include "core/error.h"
#include "support/scratch.h"

namespace chimera::apps {
namespace {

/// Returns the checkpoints that a command uses if a job replaces the first one while its weights are read.
std::vector<std::string> used_beside_a_job(const std::string& run) {
  testing::save_sample(real_disk(), run, 10);
  std::vector<std::string> used;
  const auto prepare = [&](const std::string& folder) {
    used.push_back(folder);
    return [&](RankId, Transport&) {
      if (used.size() > 1) return;
      testing::save_sample(real_disk(), run, 20);
      remove_expired(real_disk(), run, 20, {.last = 1, .every = 0});
      throw ConfigError("cannot be read");
    };
  };
  (void)run_on_model({.from = run}, {}, prepare);
  return used;
}

// In a process of its own: LibTorch takes its number of threads once.
TEST(RunOnModelTest, TakesANewerCheckpointIfOneIsRemovedMeanwhile) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const testing::Scratch scratch;
    const std::string folder = scratch.path("run");
    const std::vector<std::string> expected = {folder + "/step-00000010", folder + "/step-00000020"};
    return used_beside_a_job(folder) == expected;
  };
  EXPECT_EXIT(std::_Exit(run() ? 0 : 1), ::testing::ExitedWithCode(0), "was removed meanwhile");
}

}  // namespace
}  // namespace chimera::apps
