#include "render/perfetto.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using nlohmann::json;

/// One micro-batch through two stages, F and B of one unit, with all parts of an explanation.
struct Example {
  Schedule schedule = find_generator("1f1b").generate({2, 1});
  Timeline timeline{.workers = {{.ops = {{0, 1}, {3.5, 4.5}}}, {.ops = {{1.5, 2.5}, {2.5, 3.5}}}}, .makespan = 4.5};
  Explanation explanation{
      .bubbles = {{{1, 3.5, IdleCause::Dependency, Place{1, 1}}},
                  {{0, 1.5, IdleCause::WarmUp, {}}, {3.5, 4.5, IdleCause::Imbalance, {}}}},
      .messages = {{.from = {0, 0}, .to = {1, 0}, .sent = 1, .arrived = 1.5}},
      .all_reduces = {{{.group = ParameterGroupId(0), .start = 4.5, .end = 5}}, {}},
      .memory = {{{0, 0}, {1, 2}}, {}},
      .critical_path = {{0, 0}, {1, 0}},
  };

  [[nodiscard]] json events() const { return read_json(to_perfetto(schedule, timeline, explanation))["traceEvents"]; }
};

/// Events that contain `fields`.
std::vector<json> where(const json& events, const json& fields) {
  std::vector<json> found;
  for (const json& event : events) {
    bool fits = true;
    for (const auto& [name, value] : fields.items()) fits = fits && event.contains(name) && event[name] == value;
    if (fits) found.push_back(event);
  }
  return found;
}

TEST(PerfettoTest, GivesEachWorkerATrackOfItsOps) {
  const json events = Example().events();
  EXPECT_EQ(where(events, {{"ph", "X"}, {"pid", 1}, {"tid", 1}}).size(), 2U);
  const auto ops = where(events, {{"ph", "X"}, {"pid", 1}, {"tid", 2}});
  ASSERT_EQ(ops.size(), 2U);
  EXPECT_EQ(ops[1]["name"], "1B0");
  EXPECT_EQ(ops[1]["ts"], 2500) << "one unit is a millisecond, in microseconds";
  EXPECT_EQ(ops[1]["dur"], 1000);
  EXPECT_EQ(ops[1]["args"],
            (json{{"stage", 1}, {"replica", 0}, {"micro_batch", 0}, {"weight_version", 0}, {"critical", false}}));
  EXPECT_EQ(ops[0]["args"]["critical"], true);
  EXPECT_EQ(where(events, {{"name", "thread_name"}, {"pid", 1}, {"tid", 2}})[0]["args"]["name"], "worker 1");
}

TEST(PerfettoTest, DrawsAnArrowFromTheSenderIntoTheReceiver) {
  const json events = Example().events();
  const auto start = where(events, {{"ph", "s"}});
  const auto end = where(events, {{"ph", "f"}});
  ASSERT_EQ(start.size(), 1U);
  ASSERT_EQ(end.size(), 1U);
  EXPECT_EQ(start[0]["id"], end[0]["id"]);
  EXPECT_EQ(start[0]["tid"], 1);
  EXPECT_GT(start[0]["ts"], 0) << "inside the slice that sends";
  EXPECT_LT(start[0]["ts"], 1000);
  EXPECT_EQ(end[0]["tid"], 2);
  EXPECT_EQ(end[0]["ts"], 1500) << "where the slice that needs it begins";
  EXPECT_EQ(end[0]["bp"], "e") << "bound to the slice that encloses it, not to the next one";
}

TEST(PerfettoTest, ShowsIdleTimeByCause) {
  const auto idle = where(Example().events(), {{"ph", "X"}, {"pid", 2}});
  ASSERT_EQ(idle.size(), 3U);
  EXPECT_EQ(idle[0]["name"], "dependency");
  EXPECT_EQ(idle[0]["dur"], 2500);
  EXPECT_EQ(idle[0]["args"], (json{{"waits_for", "1B0"}, {"of_worker", 1}}));
  EXPECT_EQ(idle[1]["name"], "warm-up");
  EXPECT_EQ(idle[2]["name"], "imbalance");
}

TEST(PerfettoTest, ShowsAllReducesAndMemoryNextToTheOps) {
  const json events = Example().events();
  EXPECT_EQ(where(events, {{"ph", "X"}, {"pid", 3}, {"name", "all-reduce of stage 0"}, {"ts", 4500}}).size(), 1U);
  const auto memory = where(events, {{"ph", "C"}, {"name", "worker 0"}});
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_EQ(memory[1]["ts"], 1000);
  EXPECT_EQ(memory[1]["args"]["held"], 2);
}

TEST(PerfettoTest, LeavesOutTracksWithNothingToShow) {
  Example example;
  example.explanation = {};
  for (const json& event : example.events()) EXPECT_EQ(event["pid"], 1);
}

TEST(PerfettoTest, RefusesTimesThatViewersCannotCount) {
  Example example;
  for (const double makespan : {1e13, std::numeric_limits<double>::infinity()}) {
    example.timeline.makespan = makespan;
    EXPECT_THROW((void)example.events(), ConfigError);
  }
}

}  // namespace
}  // namespace chimera
