
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

TEST(PlaygroundCommandTest, AnswersALineForEachRequest) {
  const std::string result = output_of(
      "playground --answer -",
      R"({"do": "simulate", "view": "totals", "schedule": {"name": "chimera", "stages": 4, "micro_batches": 4}})"
      "\nnonsense\n");
  const std::size_t end = result.find('\n');
  EXPECT_EQ(read_json(result.substr(0, end))["totals"]["makespan"], 16);
  EXPECT_TRUE(read_json(result.substr(end)).contains("error"));
}

TEST(PlaygroundCommandTest, RefusesAmbiguousArguments) {
  expect_refusal({"playground", {"--output FILE", "--answer FILE"}});
  expect_refusal({"playground --output a --answer b", {"--output FILE", "--answer FILE"}});
  expect_refusal({"playground --answer no-such-file", {"no-such-file", "cannot be read"}});
}

}  // namespace
}  // namespace chimera::testing
