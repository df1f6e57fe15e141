#include "launch/local/failure_report.h"

#include <gtest/gtest.h>
#include <limits.h>

namespace chimera {
namespace {

std::optional<FailureReport> read_back(const FailureReport& report) {
  const std::string line = to_line(report);
  return parse_report(std::string_view(line).substr(0, line.size() - 1));
}

TEST(ReportTest, ReadsBackWhatWasWritten) {
  const FailureReport report{3, "1B3", "no such file: \"corpus/a.txt\"", false, true, true};
  EXPECT_EQ(read_back(report), report);
}

TEST(ReportTest, IsOneLine) {
  const std::string line = to_line({0, "", "first\nsecond", true});
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(read_back({0, "", "first\nsecond", true})->message, "first second");
}

TEST(ReportTest, IsWrittenAtomically) {
  const FailureReport long_report{0, "1B3", std::string(1'000'000, '"'), true};
  EXPECT_LE(to_line(long_report).size(), std::size_t{PIPE_BUF});
  EXPECT_GT(read_back(long_report)->message.size(), 500U);
}

TEST(ReportTest, SurvivesBytesOutsideUtf8) { EXPECT_EQ(read_back({0, "", "\xFF!", true})->message, "\xEF\xBF\xBD!"); }

TEST(ReportTest, RejectsOtherText) {
  for (const char* text :
       {"", "{", "[]", "{}",
        R"({"rank": "0", "op": "", "message": "", "own_cause": true, "usage": false, "is_final": false})",
        R"({"rank": 0, "op": "", "message": "", "own_cause": 1, "usage": false, "is_final": false})",
        R"({"rank": 0, "op": "", "message": "", "own_cause": true, "usage": false})"}) {
    EXPECT_EQ(parse_report(text), std::nullopt) << text;
  }
}

TEST(ReportTest, NoteRoundTripsAndIsNotAReport) {
  for (const auto kind : {RecoveryNote::Kind::Left, RecoveryNote::Kind::Resumed}) {
    const RecoveryNote note{.rank = 3, .kind = kind, .generation = 2, .step = 41};
    std::string line = to_line(note);
    EXPECT_EQ(line.back(), '\n');
    line.pop_back();
    EXPECT_EQ(parse_note(line), note);
    EXPECT_FALSE(parse_report(line).has_value());
  }
  for (const char* text :
       {"", "[]", "{\"rank\": 1, \"step\": 2}", "{\"rank\": \"1\", \"kind\": 1, \"epoch\": 1, \"step\": 2}"}) {
    EXPECT_FALSE(parse_note(text).has_value()) << text;
  }
  EXPECT_FALSE(parse_note(to_line(FailureReport{.rank = 1, .op = "", .message = "out of memory"})).has_value());
}

}  // namespace
}  // namespace chimera
