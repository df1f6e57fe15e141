// `chimera tokenize` and `chimera tokenizer train`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/json.h"
#include "support/paths.h"
#include "support/program.h"
#include "support/refusal.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string sentences() {
  std::string text;
  for (int i = 0; i < 60'000; ++i) text += "The heaven and the earth, day " + std::to_string(i) + ".\n";
  return text;
}

TEST(TokenizeCommandTest, TrainsATokenizerAndPrintsIds) {
  const Scratch scratch;
  const std::string text = scratch.write("text.txt", "the heaven and the earth and the sea");
  const std::string tokenizer = scratch.path("tokenizer.json");
  EXPECT_EQ(run_program(split("tokenizer train --vocabulary 270 {} --output {}", text, tokenizer)).exit_code, 0);
  EXPECT_EQ(read_json(read_file(tokenizer))["model"]["vocab"].size(), 270U);
  EXPECT_THAT(output_of(split("tokenize - --tokenizer {} --output -", tokenizer), "the sea"),
              ::testing::MatchesRegex("[0-9 ]+\n"));
  EXPECT_EQ(run_program("tokenize - --tokenizer bytes --output -", "AB").output, "65 66\n");
}

TEST(TokenizeCommandTest, ReportsSpeedAndFiles) {
  const Scratch scratch;
  const std::string text = scratch.write("text.txt", "day and night");
  const json report = read_json(output_of(
      split("tokenize {} --tokenizer bytes --output {} --format json --workers 2", text, scratch.path("out"))));
  EXPECT_EQ(report["documents"], 1);
  EXPECT_EQ(report["tokens"], 13);
  EXPECT_GT(report["megabytes_per_second"], 0);
  EXPECT_EQ(report["files"], json({scratch.path("out.bin"), scratch.path("out.idx")}));
  const ProgramResult text_report =
      run_program(split("tokenize {} --tokenizer bytes --output {} --overwrite", text, scratch.path("out")));
  EXPECT_THAT(text_report.messages, HasSubstr("1 document, 13 tokens; "));
}

TEST(TokenizeCommandTest, AKilledRunLeavesNoFinishedFileAndResumes) {
  const Scratch scratch;
  const std::string text = scratch.write("text.txt", sentences());
  const auto command = [&](const std::string& output) {
    return split("tokenize {} --tokenizer bytes --output {} --save-every 1", text, scratch.path(output));
  };
  const ProgramResult killed = ProgramRun(command("out"), {.environment = {"CHIMERA_FAULT=kill@tokenized:0:1"}}).wait();
  EXPECT_EQ(killed.killed_by, 9);
  EXPECT_EQ(read_file(scratch.path("out.bin")), "");
  EXPECT_NE(read_file(scratch.path("out.resume")), "");
  const ProgramResult resumed = succeeded(run_program(command("out")));
  EXPECT_THAT(resumed.messages, HasSubstr("an earlier run had done 2.1 MB"));
  EXPECT_EQ(run_program(command("whole")).exit_code, 0);
  EXPECT_EQ(read_file(scratch.path("out.bin")), read_file(scratch.path("whole.bin")));
  EXPECT_EQ(read_file(scratch.path("out.idx")), read_file(scratch.path("whole.idx")));
}

/// A named pipe is opened only once: otherwise its writer would receive SIGPIPE.
TEST(TokenizeCommandTest, ReadsANamedPipe) {
  const Scratch scratch;
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "AB"; });
  const ProgramResult result = run_program(split("tokenize {} --tokenizer bytes --output -", pipe));
  writer.join();
  EXPECT_EQ(result.output, "65 66\n") << result.messages;
}

TEST(TokenizeCommandTest, RefusesInvalidRequests) {
  const Scratch scratch;
  const std::string lines = scratch.write("my.json", "{\"text\": \"a\"}\n");
  const std::vector<Refusal> refusals = {
      {"tokenize x.txt --tokenizer bytes --output out", {"x.txt: cannot be read"}},
      {"tokenize - --output out", {"--tokenizer is required", "see `chimera tokenize --help`"}},
      {"tokenize - --tokenizer no.json --output out", {"the tokenizer no.json does not exist"}},
      {"tokenize - --tokenizer bytes --output out --output-format megatro", {"'megatron'?"}},
      {"tokenize - --tokenizer bytes --output - --output-format raw", {"leave out --output-format"}},
      {"tokenize - --tokenizer bytes --output out --workers 9999", {"--workers must be 0 to 1024"}},
      {"tokenizer train - --vocabulary 100", {"no text to learn from"}},
      {{"tokenizer", "train", lines}, {"my.json: is JSON with an object per line", "jq -r .text"}},
      {split("tokenize {} --tokenizer bytes --output out", lines),
       {"my.json: is JSON", "give --field text to read it"}},
      {split("tokenizer train {} --vocabulary 256", testing::source_path("/README.md")),
       {"1 special tokens and 256 bytes take 257"}},
      {split("tokenizer train {} --special a --special a", testing::source_path("/README.md")), {"'a' is given twice"}},
  };
  for (const Refusal& refusal : refusals) expect_refusal(refusal);
}

}  // namespace
}  // namespace chimera::testing
