// The beginning of a name stands for the name in every list of names: schedules, models, machines, recipes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

std::string whole_output(const Words& words) { return output_of(words); }

Words plan_on(const std::string& machine) {
  return split("plan --workers 2 --mini-batch 8 --memory 40 --top 1 --machine {}", machine);
}

TEST(ShortNamesTest, AUniqueBeginningStandsForTheName) {
  const Words shape = "--stages 2 --micro-batches 2";
  const auto with_shape = [&](Words words) {
    words += shape;
    return whole_output(words);
  };
  EXPECT_EQ(with_shape({"schedule", "gpi"}), with_shape({"schedule", "gpipe"}));
  EXPECT_EQ(with_shape({"check", "gpi"}), with_shape({"check", "gpipe"}));
  EXPECT_EQ(with_shape("simulate gpi --with 1f"), with_shape("simulate gpipe --with 1f1b"));
  EXPECT_EQ(with_shape("sweep --schedules gpi,1f"), with_shape("sweep --schedules gpipe,1f1b"));
  EXPECT_EQ(with_shape("search gpi --iterations 10 --format json"),
            with_shape("search gpipe --iterations 10 --format json"));
  EXPECT_EQ(whole_output("model bert-4 --schedule gpi"), whole_output("model bert-48 --schedule gpipe"));
  EXPECT_EQ(whole_output(plan_on("h100")), whole_output(plan_on("h100-80gb")));
}

TEST(ShortNamesTest, SeveralNamesAreListed) {
  for (const Refusal& refusal : std::vector<Refusal>{
           {"schedule chim", {"unknown schedule 'chim'; several begin with it: chimera, chimera-rotated, chimera-zb"}},
           {"sweep --schedules zb- --stages 2 --micro-batches 2", {"did you mean 'zb-v'? Also begin with it: zb-h1"}},
           {"model gpt2-", {"unknown model 'gpt2-'; several begin with it: ", "gpt2-mini", "gpt2-tiny"}},
           {plan_on("h"), {"unknown machine profile 'h'; several begin with it: h100-80gb, h200"}},
           {plan_on("h300"), {"unknown machine profile 'h300'; did you mean 'h200'?"}},
           {"search --placement l --stages 2 --micro-batches 2", {"begin with it: linear, loop"}}}) {
    expect_refusal(refusal);
  }
}

/// `adam` is another optimizer than adamw, and not its short name.
TEST(ShortNamesTest, AChoiceIsNamedInFull) {
  expect_refusal({"plan --optimizer adam", {"unknown --optimizer 'adam'; did you mean 'adamw'?"}});
  expect_refusal({"schedule gpipe --format js", {"unknown --format 'js'; did you mean 'json'?"}});
}

/// A schedule's own name, and a file, take precedence over longer names.
TEST(ShortNamesTest, AFullNameIsNoBeginning) {
  EXPECT_THAT(whole_output("schedule chimera --stages 2 --micro-batches 2 --format json"),
              ::testing::HasSubstr("\"name\": \"chimera\""));
  const Scratch scratch;
  const std::string file =
      scratch.write("gpi.json", whole_output("schedule 1f1b --stages 2 --micro-batches 2 --format json"));
  EXPECT_THAT(whole_output({"check", file}), ::testing::HasSubstr("valid: 1f1b"));
}

}  // namespace
}  // namespace chimera::testing
