// Files that commands write: never an input or another file, unless --overwrite allows it.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "core/file_descriptor.h"
#include "support/paths.h"
#include "support/program.h"
#include "support/refusal.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

const Words kShape = "--stages 2 --micro-batches 2";

TEST(OutputsTest, ExistingFilesAreReplacedOnlyOnRequest) {
  const Scratch scratch;
  const std::string text = scratch.write("book.txt", "the heaven and the earth and the sea");
  const std::string output = scratch.path("out.bin");
  const std::vector<std::pair<std::string, Words>> commands = {
      {"--output", "schedule gpipe" + kShape},
      {"--output", "simulate gpipe" + kShape},
      {"--output", "sweep --schedules gpipe" + kShape},
      {"--chart", "sweep --schedules gpipe" + kShape},
      {"--output", {"model", "gpt2-tiny"}},
      {"--output", split("tokenizer train {} --vocabulary 258", text)},
      {"--output", split("tokenize {} --tokenizer bytes --output-format raw", text)},
  };
  for (const auto& [flag, words] : commands) {
    SCOPED_TRACE(words.front() + " " + flag);
    static_cast<void>(scratch.write("out.bin", "of another run"));
    const std::string named = words.front() == "tokenize" ? scratch.path("out") : output;
    expect_refusal({words + Words{flag, named}, {flag + " " + output + ": exists already", "--overwrite"}});
    EXPECT_EQ(read_file(output), "of another run");
    EXPECT_EQ(run_program(words + Words{flag, named, "--overwrite"}).exit_code, 0);
    EXPECT_THAT(read_file(output), ::testing::Not(::testing::AnyOf("", "of another run")));
  }
}

TEST(OutputsTest, PicturesAreSvg) {
  const std::string other = Scratch().path("x.png");
  for (const Words& words : {split("schedule gpipe --output {}", other), split("simulate gpipe --output {}", other),
                             split("sweep --schedules gpipe --chart {}", other)})
    expect_refusal({words + kShape, {other + ": pictures are SVG; give a name that ends in .svg"}});
}

TEST(OutputsTest, AnInputIsNeverReplaced) {
  const Scratch scratch;
  const std::string text = scratch.write("book.txt", "the heaven and the earth and the sea");
  const std::string link = scratch.path("link");
  std::filesystem::create_symlink(text, link);
  for (const std::string& output : {text, link}) {
    const Words words = split("tokenizer train {} --vocabulary 258 --output {}", text, output);
    expect_refusal({words, {"--output " + output, "names this file"}});
    expect_refusal({words + "--overwrite", {"--output " + output, "names this file"}});
  }
  const std::string tokens = scratch.write("o.bin", "text in spite of its name");
  expect_refusal(
      {split("tokenize {} --tokenizer bytes --output-format raw --output {} --overwrite", tokens, scratch.path("o")),
       {"would replace the input " + tokens}});
  const std::string sweep = scratch.path("x");
  expect_refusal({split("sweep --schedules gpipe --output {} --chart {}", sweep, sweep) + kShape,
                  {"--output " + sweep, "names this file"}});
  // Other flags of bench and sweep go to `chimera train`.
  for (const Words& flags : {Words{"--data", text}, Words{"--data=" + text}, Words{"--data", "0.5:" + text, "0.5:x"}})
    expect_refusal({split("bench --schedules none --output {} --overwrite", text) + flags, {text, "names this file"}});
  expect_refusal({split("sweep --train x --validation {} --chart {} --overwrite", text, text) + kShape,
                  {"--chart " + text, "names this file"}});
  EXPECT_EQ(read_file(text), "the heaven and the earth and the sea");
  EXPECT_EQ(read_file(tokens), "text in spite of its name");
}

TEST(OutputsTest, AFileInAFolderThatIsReadIsNeverReplaced) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("run"));
  const std::string metrics = scratch.write("run/metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n");
  const Words words = split("compare {} {} --format json --overwrite --output", scratch.path("run"), metrics);
  expect_refusal({split("compare {} {} --overwrite --output {}", scratch.path("run"), scratch.path("run"), metrics),
                  {"--output " + metrics + ": exists in the folder ", "which another argument names"}});
  EXPECT_EQ(read_file(metrics), "{\"step\": 1, \"loss\": 2}\n");
  static_cast<void>(scratch.write("run/page.json", "of an earlier call"));
  EXPECT_EQ(run_program(words + Words{scratch.path("run/page.json")}).exit_code, 0);
  std::filesystem::create_directory(scratch.path("2"));
  static_cast<void>(scratch.write("2/picture.txt", "of an earlier call"));
  EXPECT_EQ(
      run_program(split("schedule gpipe --overwrite --output {}", scratch.path("2/picture.txt")) + kShape).exit_code, 0)
      << "--stages 2 names no folder";
}

TEST(OutputsTest, ParentFoldersAreMade) {
  const Scratch scratch;
  const Words words = "schedule gpipe" + kShape;
  EXPECT_EQ(run_program(words + Words{"--output", scratch.path("a/b/picture.txt")}).exit_code, 0);
  EXPECT_EQ(read_file(scratch.path("a/b/picture.txt")), run_program(words).output);
}

TEST(OutputsTest, AMinusIsStandardOutput) {
  const Words words = "schedule gpipe" + kShape;
  const ProgramResult result = run_program(words + "--output -");
  EXPECT_EQ(result.output, run_program(words).output);
  EXPECT_FALSE(result.left_files);
}

/// As `ulimit -f`: the kernel would kill a program that does not ignore SIGXFSZ.
TEST(OutputsTest, ALimitOnFileSizesIsAFullDisk) {
  const Scratch scratch;
  const std::string text = scratch.write("book.txt", std::string(100'000, 'a'));
  const auto limited = [&](const Words& words) {
    ProgramSetup setup;
    setup.in_process = [] {
      const rlimit limit{1000, 1000};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    };
    const ProgramResult result = ProgramRun(words, setup).wait();
    EXPECT_EQ(result.exit_code, 2) << result.killed_by;
    EXPECT_THAT(result.messages, HasSubstr("cannot be written (File too large)"));
    EXPECT_EQ(lines_of(result.messages).size(), 1U) << result.messages;
  };
  limited(split("tokenize {} --tokenizer bytes --output {}", text, scratch.path("out")));
  limited(split("tokenizer train {} --vocabulary 300 --output {}", testing::source_path("/README.md"),
                scratch.path("new/tokenizer.json")));
  limited(split("schedule gpipe --stages 8 --micro-batches 8 --format svg --output {}", scratch.path("picture.svg")));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.path("")))
    EXPECT_TRUE(entry.path() == text || entry.is_directory()) << entry.path();
}

TEST(OutputsTest, TheEndingSetsTheFormat) {
  const Scratch scratch;
  const auto written = [&scratch](const Words& words, const std::string& name) {
    succeeded(run_program(words + kShape + Words{"--output", scratch.path(name), "--overwrite"}));
    return read_file(scratch.path(name));
  };
  written({"schedule", "chimera"}, "mine.json");
  EXPECT_EQ(run_program({"check", scratch.path("mine.json")}).exit_code, 0);
  EXPECT_THAT(written({"simulate", "chimera"}, "page.html"), ::testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(written("sweep --schedules gpipe", "rows.json"), ::testing::StartsWith("{"));
  EXPECT_THAT(written("sweep --schedules gpipe", "rows"), ::testing::StartsWith("schedule,"));
  EXPECT_THAT(written("schedule chimera --format text", "mine.json"), HasSubstr("worker 0 |"));
}

TEST(OutputsTest, FlagsWithoutEffectAreRefused) {
  const Scratch scratch;
  const std::string lines = scratch.write("metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n");
  for (const Refusal& refusal : std::vector<Refusal>{
           {"sweep --schedules gpipe --value makespan" + kShape, {"--value is for --chart"}},
           {"sweep --schedules gpipe --over stages" + kShape, {"--over is for --chart"}},
           {split("top {} --once --interval 2", lines), {"--interval is for a view that updates"}},
           {split("top {} --format json --interval 2", lines), {"--interval is for a view that updates"}},
           {"launch --ssh x -- train", {"--ssh is for --hosts"}},
           {"profile --program x", {"--program is for --hosts"}},
           {"model gpt2-tiny --micro-batches 4", {"--micro-batches is for --schedule"}},
           {split("bench --export {} --most-disturbed 3", scratch.path("e")),
            {"--most-disturbed: --export runs nothing"}},
           {"tokenize - --tokenizer bytes --output - --save-every 2", {"--save-every", "saves no"}},
           {"tokenize - --tokenizer bytes --output - --overwrite", {"--overwrite", "no file"}},
           {split("plan --data {} --machine {} --workers 2 --mini-batch 2", lines,
                  testing::source_path("/machines/p100-aries.json")),
            {"--data is for --run"}},
       }) {
    expect_refusal(refusal);
  }
}

TEST(OutputsTest, AFolderWithoutCheckpointsIsNamed) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("run"));
  for (const char* action : {"list", "show", "verify"})
    expect_refusal({{"checkpoint", action, scratch.path("run")}, {scratch.path("run") + ": has no checkpoints"}});
  expect_refusal({split("checkpoint convert {} --output {}", scratch.path("run"), scratch.path("x")),
                  {"`chimera checkpoint convert` is now `chimera export`"}});
  static_cast<void>(scratch.write("run/step-00000010", "a file"));
  expect_refusal({{"checkpoint", "list", scratch.path("run")},
                  {"run: has no checkpoints; ", "step-00000010: is not the folder of a checkpoint"}});
}

/// A command whose result is its output fails if standard output is closed or full.
TEST(OutputsTest, CommandsFailIfTheirOutputCannotBeWritten) {
  const FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const Words shape = "--stages 2 --micro-batches 2";
  for (const Words& words : std::vector<Words>{
           "schedule gpipe" + shape, "simulate gpipe" + shape, "check gpipe" + shape, "sweep --schedules gpipe" + shape,
           "search --iterations 10" + shape, "schedules", "env", "model gpt2", "reference", "demo model", "--help",
           "--version", "simulate --help", "train --dry-run --model gpt2-tiny" + shape}) {
    for (const int descriptor : {-1, full.get()}) {
      const ProgramResult result = ProgramRun(words, {.output = descriptor}).wait();
      EXPECT_EQ(result.exit_code, 1) << words[0] << " " << descriptor;
      EXPECT_THAT(result.messages, ::testing::EndsWith("chimera: standard output cannot be written\n")) << words[0];
    }
  }
}

}  // namespace
}  // namespace chimera::testing
