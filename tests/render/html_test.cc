#include "render/html.h"

#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "panels.h"
#include "render/encoding.h"

namespace chimera {
namespace {

using nlohmann::json;
using testing::count;

/// The data that the page's script reads.
json data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const std::size_t from = page.find(begin) + begin.size();
  return read_json(page.substr(from, page.find("</script>", from) - from));
}

std::string decoded(const std::string& base64_text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : base64_text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    held += 6;
    if (held >= 8) bytes += static_cast<char>(bits >> (held -= 8) & 0xFF);
  }
  return bytes;
}

std::vector<double> values(const json& column) {
  const std::string bytes = decoded(column["data"]);
  const std::string type = column["type"];
  const std::size_t width = type == "u8" ? 1 : type == "u16" ? 2 : 4;
  std::vector<double> result;
  for (std::size_t i = 0; i < bytes.size(); i += width) {
    std::uint32_t value = 0;
    for (std::size_t k = 0; k < width; ++k)
      value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i + k])) << (8 * k);
    result.push_back(type == "f32" ? static_cast<double>(std::bit_cast<float>(value)) : value);
  }
  return result;
}

TEST(HtmlTest, LoadsNothing) {
  const std::string page = to_html({testing::panel_of("chimera", {4, 4}), testing::panel_of("1f1b", {4, 4})});
  for (const char* part : {"http://", "https://", "src=", "href", "@import", "url(", "fetch(", "import("})
    EXPECT_EQ(count(page, part), 0U) << part;
  EXPECT_EQ(count(page, "default-src 'none'"), 1U) << "nor may anything that slips in";
}

TEST(HtmlTest, HoldsEveryPart) {
  const std::string page = to_html({testing::panel_of("chimera", {4, 4})});
  for (const char* part : {"@title@", "@style@", "@data@", "@script@"}) EXPECT_EQ(count(page, part), 0U) << part;
  EXPECT_EQ(count(page, "<title>chimera</title>"), 1U);
  EXPECT_EQ(count(page, "class Panel {"), 1U);
  EXPECT_EQ(count(page, "class View {"), 1U);
  EXPECT_EQ(count(page, "class Painter {"), 1U);
  EXPECT_EQ(count(page, "</html>"), 1U);
}

TEST(HtmlTest, HoldsTheOpsAndTheirTimes) {
  const Panel panel = testing::panel_of("chimera", {4, 4});
  const json ops = data_of(to_html({panel}))["panels"][0]["ops"];
  EXPECT_EQ(values(ops["first"]), (std::vector<double>{0, 8, 16, 24, 32}));
  const auto kinds = values(ops["kind"]);
  const auto stages = values(ops["stage"]);
  const auto micro_batches = values(ops["microBatch"]);
  const auto replicas = values(ops["replica"]);
  const auto starts = values(ops["start"]);
  const auto ends = values(ops["end"]);
  ASSERT_EQ(kinds.size(), 32U);
  for (std::size_t w = 0; w < 4; ++w) {
    for (std::size_t i = 0; i < 8; ++i) {
      const Op& op = panel.schedule.workers[w][i];
      EXPECT_EQ(kinds[8 * w + i], static_cast<double>(op.kind));
      EXPECT_EQ(stages[8 * w + i], op.stage.value());
      EXPECT_EQ(micro_batches[8 * w + i], op.micro_batch.value());
      EXPECT_EQ(replicas[8 * w + i], op.replica.value());
      EXPECT_EQ(starts[8 * w + i], panel.timeline.workers[w].ops[i].start);
      EXPECT_EQ(ends[8 * w + i], panel.timeline.workers[w].ops[i].end);
    }
  }
}

TEST(HtmlTest, HoldsTheExplanation) {
  const json panel = data_of(to_html({testing::panel_of("chimera", {4, 4})}))["panels"][0];
  EXPECT_EQ(values(panel["bubbles"]["first"]), (std::vector<double>{0, 2, 4, 4, 4}));
  EXPECT_EQ(values(panel["bubbles"]["cause"]), (std::vector<double>{1, 2, 0, 4}));
  EXPECT_EQ(values(panel["bubbles"]["waitsFor"]), (std::vector<double>{9, 9, 0, 4294967295.0}));
  EXPECT_EQ(values(panel["messages"]["from"]), (std::vector<double>{0}));
  EXPECT_EQ(values(panel["messages"]["to"]), (std::vector<double>{8}));
  EXPECT_EQ(values(panel["messages"]["arrived"]), (std::vector<double>{1.25}));
  EXPECT_EQ(values(panel["allReduces"]["end"]), (std::vector<double>{15.5}));
  EXPECT_EQ(values(panel["memory"]["amount"]), (std::vector<double>{1, 2, 1, 0}));
  EXPECT_EQ(values(panel["criticalPath"]), (std::vector<double>{0, 8}));
  EXPECT_EQ(panel["replicas"][1]["name"], "up");
  EXPECT_EQ(panel["totals"]["weightCopies"], 2.0);
  EXPECT_EQ(panel["totals"]["withAllReduce"], nullptr);
}

TEST(HtmlTest, NamesCannotBreakOut) {
  Panel panel = testing::panel_of("1f1b", {2, 2});
  panel.title = "</script><script>alert('@script@')</script><!-- \xFF";
  const std::string page = to_html({panel});
  EXPECT_EQ(count(page, "<script>alert"), 0U);
  EXPECT_EQ(count(page, "<!--"), 0U);
  EXPECT_EQ(count(page, "</script>"), 2U) << "the data's and the script's own";
  EXPECT_EQ(data_of(page)["panels"][0]["title"], "</script><script>alert('@script@')</script><!-- \xEF\xBF\xBD");
  EXPECT_EQ(count(page, "class Panel {"), 1U) << "what is put in is not looked at again";
}

TEST(HtmlTest, GrowsByFewBytesPerOp) {
  const auto bytes = [](std::int64_t micro_batches) {
    return to_html({testing::panel_of("1f1b", {16, micro_batches})}).size();
  };
  const std::size_t ops = 2 * 16 * 1000;
  EXPECT_LT(bytes(2000) - bytes(1000), ops * 20) << "without the explanation's share";
}

TEST(HtmlTest, RefusesSchedulesThatAPageCannotShow) {
  EXPECT_THROW((void)to_html({}), ConfigError);
  Panel long_panel = testing::panel_of("1f1b", {2, 2});
  long_panel.timeline.makespan = 1e300;
  EXPECT_THROW((void)to_html({long_panel}), ConfigError);
  Panel large;
  large.schedule = find_generator("gpipe").generate({1000, 600});
  EXPECT_THROW((void)to_html({large}), ConfigError);
}

}  // namespace
}  // namespace chimera
