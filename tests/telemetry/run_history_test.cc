#include "telemetry/run_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/manifest.h"
#include "core/error.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::Scratch;
using ::testing::ThrowsMessage;

constexpr const char* kLines =
    R"({"step": 1, "loss": 5.5, "grad_norm": 2, "learning_rate": 0.1, "tokens": 64, "step_seconds": 4, )"
    R"("tokens_per_second": 16, "peak_memory_bytes": 1000})"
    "\n"
    R"({"step": 2, "loss": 4.5, "step_seconds": 1, "tokens_per_second": 64, "peak_memory_bytes": 3000, )"
    R"("validation_loss": 4.25, "eta_seconds": 8})"
    "\n"
    R"({"step": 3, "loss": 4, "step_seconds": 2, "tokens_per_second": 32, "peak_memory_bytes": 2000, )"
    R"("used_memory_bytes": 9000})"
    "\n";

TEST(RunHistoryTest, ReadsOnlyWholeLines) {
  const auto steps = parse_metrics("m", std::string(kLines) + R"({"step": 4, "lo)");
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[1].validation_loss, 4.25);
  EXPECT_EQ(steps[0].gradient_norm, 2);
  EXPECT_EQ(steps[2].seconds_left, std::nullopt);
  EXPECT_EQ(steps[1].used_memory_bytes, std::nullopt);
  EXPECT_EQ(steps[2].used_memory_bytes, 9000);
}

TEST(RunHistoryTest, NamesTheInvalidLine) {
  for (const char* bad : {"nonsense\n", "[1]\n", "{\"loss\": 1}\n", "{\"step\": \"one\"}\n"}) {
    EXPECT_THAT([&] { (void)parse_metrics("run/metrics.jsonl", std::string(kLines) + bad); },
                ThrowsMessage<ConfigError>(HasSubstr("run/metrics.jsonl:4: this is not a step")));
  }
}

TEST(RunHistoryTest, SaysWhyARunCannotBeRead) {
  const Scratch scratch;
  const std::string loop = scratch.path("loop");
  std::filesystem::create_symlink(loop, loop);
  EXPECT_THAT([&] { static_cast<void>(read_run(loop)); },
              ThrowsMessage<ConfigError>(HasSubstr("loop: cannot be read (Too many levels of symbolic links)")));
  std::filesystem::create_symlink(loop, scratch.path("metrics.jsonl"));
  EXPECT_THAT([&] { static_cast<void>(read_run(scratch.path("."))); },
              ThrowsMessage<ConfigError>(HasSubstr("metrics.jsonl: cannot be read (Too many levels")));
}

TEST(RunHistoryTest, NamesAnArchive) {
  const Scratch scratch;
  const std::string path = scratch.write("metrics.jsonl.gz", "\x1F\x8B\x08\x08");
  EXPECT_THAT([&] { static_cast<void>(read_run(path)); },
              ThrowsMessage<ConfigError>(HasSubstr("metrics.jsonl.gz: is a gzip archive; unpack it: gunzip -k")));
}

TEST(RunHistoryTest, ANullLossIsNotANumber) {
  EXPECT_TRUE(std::isnan(parse_metrics("m", "{\"step\": 1, \"loss\": null}\n").front().loss));
}

TEST(RunHistoryTest, MediansLeaveOutTheFirstStep) {
  const RunHistory run{.name = "a", .metrics = "a", .steps = parse_metrics("a", kLines), .configuration = {}};
  const RunResults figures = summarize_run(run);
  EXPECT_EQ(figures.steps, 3);
  EXPECT_EQ(figures.step_seconds, 2);
  EXPECT_EQ(figures.tokens_per_second, 64);
  EXPECT_EQ(figures.peak_memory_bytes, 3000);
  EXPECT_EQ(figures.total_seconds, 7);
  EXPECT_EQ(figures.best_validation_loss, 4.25);
}

TEST(RunHistoryTest, FindsMetricsInAFolderOrSaysHowToGetThem) {
  const Scratch folder;
  EXPECT_THAT([&] { (void)read_run(folder.path("absent")); }, ThrowsMessage<ConfigError>(HasSubstr("no such run")));
  EXPECT_THAT([&] { (void)read_run(folder.path("")); }, ThrowsMessage<ConfigError>(HasSubstr("--metrics")));
  folder.write("metrics.jsonl", kLines);
  EXPECT_EQ(read_run(folder.path("")).steps.size(), 3U);
  EXPECT_EQ(read_run(folder.path("metrics.jsonl")).steps.size(), 3U);
}

TEST(RunHistoryTest, TakesTheConfigurationOfTheNewestCheckpointThatCanBeRead) {
  const Scratch folder;
  folder.write("metrics.jsonl", kLines);
  EXPECT_TRUE(read_run(folder.path("")).configuration.empty());
  const auto save = [&](const char* name, const char* schedule) {
    std::filesystem::create_directory(folder.path(name));
    Manifest manifest{.step = 2, .run = {{"layout", {{"schedule", schedule}, {"stages", 4}}}}, .files = {}};
    manifest.run["hyperparameters"] = {{"steps", 10}, {"cooldown", nullptr}};
    folder.write(std::string(name) + "/manifest.json", to_text(manifest));
  };
  save("step-00000002", "1f1b");
  save("step-00000003", "chimera");
  EXPECT_EQ(value_of(read_run(folder.path("")).configuration, "layout.schedule"), "chimera");
  folder.write("step-00000003/manifest.json", "{}");
  const RunHistory run = read_run(folder.path(""));
  EXPECT_EQ(value_of(run.configuration, "layout.schedule"), "1f1b");
  EXPECT_EQ(planned_steps(run), 10);
  EXPECT_EQ(value_of(run.configuration, "hyperparameters.cooldown", "none"), "none");
}

}  // namespace
}  // namespace chimera
