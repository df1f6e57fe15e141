// Files of --metrics that a run may continue or replace.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <limits>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "support/scratch.h"
#include "telemetry/metrics.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::Scratch;
using ::testing::ThrowsMessage;

std::string lines(std::int64_t first, std::int64_t last) {
  std::string text;
  for (std::int64_t step = first; step <= last; ++step)
    text += to_json_line({.step = step, .loss = 1.0 / static_cast<double>(step)});
  return text;
}

class OwnMetricsTest : public ::testing::Test {
 protected:
  /// Checks the file for a run that continues after step 3, which had the loss 1/3.
  std::string refusal(const std::string& text, const nlohmann::json& loss = 1.0 / 3) {
    const std::string path = scratch_.write("metrics.jsonl", text);
    try {
      require_continuable_lines(path, 3, loss);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("--metrics " + path + ": "));
      EXPECT_THAT(error.what(), HasSubstr("give another file, or --overwrite"));
      EXPECT_EQ(read_file(path), text);
      return error.what();
    }
    return "";
  }

  Scratch scratch_;
};

TEST_F(OwnMetricsTest, ARunContinuesItsOwnLines) {
  EXPECT_EQ(refusal(lines(1, 3)), "");
  EXPECT_EQ(refusal(lines(2, 5)), "") << "the run had no --metrics before step 2, and was killed after step 5";
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(lines(1, 2) + to_json_line({.step = 3, .loss = std::numeric_limits<double>::quiet_NaN()}), nullptr),
            "");
  EXPECT_NO_THROW(require_continuable_lines(scratch_.path("absent"), 3, nlohmann::json(1)));
}

TEST_F(OwnMetricsTest, RefusesOtherFiles) {
  const auto is_refused = HasSubstr("exists already and is not of this run");
  EXPECT_THAT(refusal("a diary\n"), is_refused);
  EXPECT_THAT(refusal("{\"step\": 3}\n"), is_refused);
  EXPECT_THAT(refusal(lines(1, 3), 0.5), is_refused) << "another loss";
  EXPECT_THAT(refusal(lines(4, 9)), is_refused) << "later steps";
  EXPECT_THAT(refusal(lines(1, 2)), is_refused) << "ends before the checkpoint's step";
  EXPECT_THAT(refusal(lines(1, 1) + "a diary\n" + lines(3, 4)), is_refused);
}

TEST_F(OwnMetricsTest, ARunThatStartsAgainReplacesMetricsOnly) {
  EXPECT_NO_THROW(require_continuable_lines(scratch_.write("a", lines(1, 9) + "{\"st"), 0, std::nullopt));
  EXPECT_THAT([&] { require_continuable_lines(scratch_.write("b", "a diary\n"), 0, std::nullopt); },
              ThrowsMessage<ConfigError>(HasSubstr("is not of this run")));
}

TEST_F(OwnMetricsTest, TwoRunsDoNotWriteOneFile) {
  const std::string path = scratch_.path("new/metrics.jsonl");
  MetricsFile first(path);
  first.write({.step = 1});
  const auto is_refused = ThrowsMessage<ConfigError>(HasSubstr("another run is writing this file"));
  EXPECT_THAT([&] { MetricsFile second(path); }, is_refused);
  EXPECT_THAT([&] { require_unlocked_lines(path); }, is_refused);
  EXPECT_THAT([&] { require_continuable_lines(path, 1, std::nullopt); }, is_refused);
  EXPECT_EQ(read_file(path), to_json_line({.step = 1}));
}

}  // namespace
}  // namespace chimera
