// Hostile input: the program must answer soon, in bounded memory, and never crash.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

/// A schedule of one stage and one micro-batch with the given `replicas` and `counts`.
std::string schedule(const std::string& replicas, const std::string& counts = R"("stages": 1, "micro_batches": 1)") {
  return R"({"format": "chimera-schedule", "version": 1, "name": "x", )" + counts + R"(, "replicas": [)" + replicas +
         R"(], "workers": [[{"op": "F", "stage": 0, "replica": 0, "micro_batch": 0},
                            {"op": "B", "stage": 0, "replica": 0, "micro_batch": 0}]]})";
}

std::string many(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(HostileInputTest, ReplicasBeyondTheIdsOfOps) {
  std::string replicas;
  for (int r = 0; r < 100'000; ++r)
    replicas += (r == 0 ? "" : ", ") + (R"({"id": )" + std::to_string(r) + R"(, "workers": [0]})");
  const ProgramResult result = run_program("check -", schedule(replicas));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("100000 replicas; ops can name 32767 at most"));
}

TEST(HostileInputTest, DeepNesting) {
  for (const std::string& text :
       {many(100'000, "["), many(100'000, "[") + many(100'000, "]"), many(100'000, "{\"format\":")}) {
    for (const Words command : {"check -", "simulate --file -"}) {
      const ProgramResult result = run_program(command, text);
      EXPECT_EQ(result.exit_code, 2) << "killed by signal " << result.killed_by;
      EXPECT_EQ(lines_of(result.messages).size(), 1U);
    }
  }
}

TEST(HostileInputTest, AFewBytesThatClaimFiftyMillionOps) {
  const std::string replica = R"({"id": 0, "workers": [0]})";
  const ProgramResult result = run_program("check -", schedule(replica, R"("stages": 5000000, "micro_batches": 10)"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("0F1 is missing"));
  EXPECT_THAT(result.output, HasSubstr("99979998 more of kind missing_op"));
}

TEST(HostileInputTest, HugeCounts) {
  for (const char* counts :
       {R"("stages": 100000000, "micro_batches": 100000000)", R"("stages": 1e30, "micro_batches": 1)",
        R"("stages": 18446744073709551615, "micro_batches": 1)", R"("stages": 0, "micro_batches": 1)",
        R"("stages": -1, "micro_batches": 1)"}) {
    EXPECT_EQ(run_program("check -", schedule(R"({"id": 0, "workers": [0]})", counts)).exit_code, 2) << counts;
  }
}

TEST(HostileInputTest, HugeIds) {
  for (const char* id : {"18446744073709551615", "-9223372036854775808", "65536", "4294967296"}) {
    const std::string worker = R"({"id": 0, "workers": [)" + std::string(id) + "]}";
    EXPECT_EQ(run_program("check -", schedule(worker)).exit_code, 1) << id;
    std::string other_stage = schedule(R"({"id": 0, "workers": [0]})");
    other_stage.replace(other_stage.find("\"stage\": 0"), 10, "\"stage\": " + std::string(id));
    EXPECT_EQ(run_program("check -", other_stage).exit_code, 1) << id;
  }
}

TEST(HostileInputTest, AnEndlessFile) {
  const ProgramResult result = run_program("check /dev/zero");
  EXPECT_EQ(result.exit_code, 2) << "killed by signal " << result.killed_by;
  EXPECT_THAT(result.messages, HasSubstr("/dev/zero: is longer than 1073741824 bytes"));
}

TEST(HostileInputTest, ACellThatClaimsManyOps) {
  for (const char* cells : {"0F49999999", "49999999F0", "0F0,0F1000000000000", "99999999999999999999999F0"}) {
    const ProgramResult result = run_program("check -", cells);
    EXPECT_EQ(result.exit_code, 2) << cells;
    EXPECT_THAT(result.messages, HasSubstr("ids count from 0"));
  }
}

TEST(HostileInputTest, BinaryData) {
  for (const std::string& bytes : {std::string(1000, '\0'), std::string("\xFF\xFE{}"), std::string("{\"\xC3\": 1}")})
    EXPECT_EQ(run_program("check -", bytes).exit_code, 2);
}

TEST(HostileInputTest, AFullStandardOutput) {
  const ProgramResult result = run_program("schedule gpipe --stages 2 --micro-batches 2 --output /dev/full");
  EXPECT_EQ(result.exit_code, 1) << "the flags are right";
  EXPECT_THAT(result.messages, HasSubstr("/dev/full: cannot be written (No space left on device)"));
}

TEST(HostileInputTest, AVeryLongName) {
  const std::string name(100'000, 'x');
  for (const Words& command : {Words{name}, {"schedule", name}, {"model", name}}) {
    const ProgramResult result = run_program(command);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_LT(result.messages.size(), 500U);
  }
}

}  // namespace
}  // namespace chimera::testing
