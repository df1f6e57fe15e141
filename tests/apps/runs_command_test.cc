// `chimera top` and `chimera compare`, and output for terminals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file_descriptor.h"
#include "core/json.h"
#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// Metrics of a run of `steps` steps.
std::string metrics(int steps, double speed) {
  std::string text;
  for (int step = 1; step <= steps; ++step) {
    text += json_text(json({{"step", step},
                            {"loss", 5.0 / step},
                            {"step_seconds", 1 / speed},
                            {"tokens_per_second", 64 * speed},
                            {"peak_memory_bytes", 1 << 20},
                            {"eta_seconds", 3}})) +
            "\n";
  }
  return text;
}

TEST(TopCommandTest, PrintsTheViewOnceWithoutATerminal) {
  const Scratch scratch;
  const std::string file = scratch.write("metrics.jsonl", metrics(7, 2));
  EXPECT_THAT(output_of({"top", scratch.path("")}), HasSubstr("step      7"));
  const json view = read_json(run_program(split("top {} --format json", file)).output);
  EXPECT_EQ(view["step"], 7);
  EXPECT_EQ(view["tokens_per_second"], 128);
  EXPECT_EQ(view["state"], "unknown");
  EXPECT_TRUE(view["ranks"].empty());
}

/// A terminal of 20 columns.
class NarrowTerminal {
 public:
  NarrowTerminal() {
    int ends[2] = {-1, -1};
    const winsize size{.ws_row = 24, .ws_col = 20, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::openpty(&ends[0], &ends[1], nullptr, nullptr, &size), 0);
    reader_ = FileDescriptor(ends[0]);
    program_side_ = FileDescriptor(ends[1]);
  }
  [[nodiscard]] int program_side() const { return program_side_.get(); }

  /// Returns all that was shown, after the program has ended.
  std::string shown() {
    program_side_ = FileDescriptor();
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t count = 0; (count = ::read(reader_.get(), buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<std::size_t>(count));
    return text;
  }

 private:
  FileDescriptor reader_;
  FileDescriptor program_side_;
};

TEST(TopCommandTest, ADumbTerminalGetsNoEscapes) {
  const Scratch scratch;
  const std::string file = scratch.write("metrics.jsonl", metrics(7, 2));
  NarrowTerminal terminal;
  const ProgramResult result =
      ProgramRun({"top", file}, {.environment = {"TERM=dumb"}, .output = terminal.program_side()}).wait();
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_THAT(terminal.shown(), AllOf(HasSubstr("step      7"), Not(HasSubstr("\x1b"))));
}

TEST(TokenizeCommandTest, ProgressFitsTheTerminal) {
  const Scratch scratch;
  const std::string book = scratch.write("book.txt", "Call me Ishmael.");
  const auto messages = [&](const std::string& kind) {
    NarrowTerminal terminal;
    const ProgramResult result =
        ProgramRun(split("tokenize {} --tokenizer bytes --output {}", book, scratch.path(kind)),
                   {.environment = {"TERM=" + kind}, .messages = terminal.program_side()})
            .wait();
    EXPECT_EQ(result.exit_code, 0);
    return terminal.shown();
  };
  EXPECT_THAT(messages("dumb"), AllOf(HasSubstr("1 document, "), Not(HasSubstr("\x1b"))));
  const std::string clears = "\r\x1b[K";
  const std::string shown = messages("xterm");
  ASSERT_THAT(shown, HasSubstr(clears));
  for (std::size_t at = shown.find(clears); at != std::string::npos;) {
    const std::size_t next = shown.find(clears, at + clears.size());
    if (next != std::string::npos) EXPECT_LE(next - at - clears.size(), 20) << shown;
    at = next;
  }
}

TEST(DiagnoseCommandTest, AFolderThatCannotBeReadIsNoFolderWithoutRecords) {
  const Scratch scratch;
  const std::string loop = scratch.path("loop");
  std::filesystem::create_symlink(loop, loop);
  expect_refusal({{"diagnose", loop}, {loop + ": cannot be read (Too many levels of symbolic links)"}});
  expect_refusal({{"diagnose", scratch.path("none")}, {"none: no such run or trace; give the folder of --checkpoint"}});
  expect_refusal({{"diagnose", scratch.path("")}, {"has no flight records"}});
}

TEST(DiagnoseCommandTest, ListsTheChangesOfTheOrder) {
  const Scratch scratch;
  scratch.write("speed.json", R"({"text": "speed\n"})");
  EXPECT_THAT(run_program({"diagnose", scratch.path("")}).output, Not(HasSubstr("order")));
  scratch.write("metrics.jsonl", "{\"step\": 56, \"loss\": 2, \"order\": \"rank 1 takes 2.1 times as long\"}\n");
  const ProgramResult text = run_program({"diagnose", scratch.path("")});
  EXPECT_THAT(text.output, HasSubstr("changes of the order:\n  step 56: rank 1 takes 2.1 times as long\n"));
  const json report = read_json(run_program(split("diagnose {} --format json", scratch.path(""))).output);
  EXPECT_EQ(report["order_changes"], json({"step 56: rank 1 takes 2.1 times as long"}));
}

TEST(CompareCommandTest, ATableFitsTheTerminal) {
  const Scratch scratch;
  Words words = {"compare"};
  for (const char* name : {"a.jsonl", "b.jsonl"}) words.push_back(scratch.write(name, metrics(5, 1)));
  NarrowTerminal terminal;
  EXPECT_EQ(ProgramRun(words, {.output = terminal.program_side()}).wait().exit_code, 0);
  const std::string shown = terminal.shown();
  EXPECT_THAT(shown, ContainsRegex("steps +5\r\n")) << shown;
  EXPECT_THAT(shown, Not(ContainsRegex("steps +5 +5"))) << shown;
}

TEST(CompareCommandTest, WritesTextJsonPictureAndPage) {
  const Scratch scratch;
  const std::string a = scratch.write("a.jsonl", metrics(5, 1));
  const std::string b = scratch.write("b.jsonl", metrics(5, 3));
  EXPECT_THAT(run_program({"compare", a, b}).output, HasSubstr("3.00"));
  const json both = read_json(run_program(split("compare {} {} --format json", a, b)).output);
  EXPECT_EQ(both["runs"][1]["tokens_per_second"], 192);
  EXPECT_TRUE(both["differences"].empty());
  EXPECT_THAT(run_program(split("compare {} {} --format svg", a, b)).output, ::testing::StartsWith("<svg "));
  const std::string page = scratch.path("page.html");
  EXPECT_EQ(run_program(split("compare {} {} --format html --output {}", a, b, page)).exit_code, 0);
  EXPECT_THAT(read_file(page), HasSubstr("Runs side by side"));
}

TEST(RunsCommandTest, JsonHasNamesThatAreNotUtf8) {
  const Scratch scratch;
  const std::string a = scratch.write("a\xFF.jsonl", metrics(5, 1));
  const std::string b = scratch.write("b.jsonl", metrics(5, 3));
  const json view = read_json(run_program(split("top {} --format json", a)).output);
  EXPECT_EQ(view["metrics"], scratch.path("a\uFFFD.jsonl"));
  const json both = read_json(run_program(split("compare {} {} --format json", a, b)).output);
  EXPECT_EQ(both["runs"].size(), 2U);
  const json report =
      read_json(run_program(split("tokenize {} --tokenizer bytes --output {} --format json",
                                  scratch.write("book\xE9.txt", "day and night"), scratch.path("out\xFF")))
                    .output);
  EXPECT_EQ(report["files"][0], scratch.path("out\uFFFD.bin"));
}

TEST(RunsCommandTest, RefuseMissingAndInvalidRuns) {
  const Scratch scratch;
  const std::string bad = scratch.write("bad.jsonl", "no step\n");
  for (const char* command : {"top", "compare"}) {
    expect_refusal({{command}, {"RUN is required"}});
    expect_refusal({{command, "no-such-run"}, {"no-such-run", "no such run", "--metrics"}});
    expect_refusal({{command, scratch.path("")}, {"metrics.jsonl: no such run; give the folder"}});
    expect_refusal({{command, bad}, {"bad.jsonl:1", "not a step of a run"}});
  }
  expect_refusal({{"compare", scratch.write("empty.jsonl", "")}, {"has not finished a step yet"}});
  expect_refusal({split("top {} --interval 0", bad), {"--interval"}});
}

}  // namespace
}  // namespace chimera::testing
