#include "traces/rank_trace.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <filesystem>

#include "core/error.h"
#include "generate/registry.h"
#include "support/message_of.h"
#include "traces/torch_trace.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string refusal_of(const std::string& text) {
  return testing::message_of([&] { (void)read_trace_text(text, "rank0.json"); }, "accepted");
}

std::string one_trace() {
  const Schedule schedule = find_generator("1f1b").generate({.stages = 2, .micro_batches = 3});
  return testing::torch_traces(schedule, testing::uneven_costs(2)).front();
}

std::string with_events(const std::string& events) {
  return R"({"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": [)" + events + "]}";
}
std::string annotation(const std::string& name, double start, double seconds) {
  return fmt::format(R"({{"ph": "X", "cat": "user_annotation", "name": "{}", "ts": {}, "dur": {}}})", name, start,
                     seconds);
}

TEST(RankTraceTest, RefusesFilesByName) {
  const std::string trace = one_trace();
  const std::pair<std::string, const char*> cases[] = {
      {"", "rank0.json: not a complete trace ("},
      {trace.substr(0, trace.size() / 2), "rank0.json: not a complete trace ("},
      {trace.substr(0, trace.size() - 1), "rank0.json: not a complete trace ("},
      {trace + "{}", "rank0.json: "},
      {"[1, 2]", "rank0.json: not a complete trace ("},
      {"{}", "rank0.json: no list `traceEvents`"},
      {with_events(""), "rank0.json: no ranges of a pipeline, such as PP:0F0"},
      {with_events(annotation("forward-compute", 1, 2)), "rank0.json: no ranges of a pipeline"},
      {with_events(annotation("PP:0UNSHARD", 1, 2)), "rank0.json: no ranges of a pipeline"},
      {with_events(annotation("PP:99999999F0", 1, 2)), "rank0.json: no ranges of a pipeline"},
      {with_events(annotation("PP:0F0", 1, -2)), "rank0.json: an event at 1 with a duration of -2"},
      {with_events(annotation("PP:0F0", 1e20, 2)), "rank0.json: an event at"},
      {R"({"traceEvents": [)" + annotation("PP:0F0", 1, 2) + "]}", "rank0.json: no `distributedInfo` with a rank"},
      {R"({"distributedInfo": {"rank": 2, "world_size": 2}, "traceEvents": []})",
       "rank0.json: distributedInfo: rank 2 of 2"},
      {R"({"baseTimeNanoseconds": -1, "traceEvents": []})", "rank0.json: baseTimeNanoseconds: -1"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(refusal_of(text), StartsWith(message)) << text.substr(0, 200);
  EXPECT_THAT(refusal_of(with_events("")),
              HasSubstr("chimera schedule 1f1b --stages D --micro-batches N --format csv"));
  EXPECT_THAT(refusal_of(with_events("")), HasSubstr("record_function"));
}

TEST(RankTraceTest, ReadsTheKindsOfRanges) {
  std::string events;
  int at = 0;
  for (const char* name :
       {"PP:0UNSHARD", "PP:3RECV_F1", "PP:3F1", "PP:3SEND_B1", "PP:3I1", "PP:3W1", "PP:3B2", "PP:3REDUCE_GRAD",
        "PP:3RESHARD", "Optimizer.step#Adam.step", "PP:", "PP:3", "PP:3X1", "step"})
    events += (events.empty() ? "" : ", ") + annotation(name, 10 * at++, 5);
  const auto ranges = read_trace_text(with_events(events), "t").front().ranges;
  ASSERT_EQ(ranges.size(), 10U);
  using enum RangeKind;
  const RangeKind kinds[] = {Gather,        Message,       RangeKind::Op, Message, RangeKind::Op,
                             RangeKind::Op, RangeKind::Op, GradientSum,   Gather,  Optimizer};
  for (std::size_t i = 0; i < ranges.size(); ++i) EXPECT_EQ(ranges[i].kind, kinds[i]) << i;
  EXPECT_FALSE(ranges[1].sends);
  EXPECT_TRUE(ranges[3].sends);
  EXPECT_EQ(ranges[6].op.kind, OpKind::Backward);
  EXPECT_EQ(ranges[6].op.micro_batch, MicroBatchId(2));
}

TEST(RankTraceTest, SplitsAPairAtTheFirstAutogradOperator) {
  const auto op = [](const char* name, double start, double seconds) {
    return fmt::format(R"({{"ph": "X", "cat": "cpu_op", "name": "{}", "ts": {}, "dur": {}}})", name, start, seconds);
  };
  const std::string node = "autograd::engine::evaluate_function: AddmmBackward0";
  const auto ranges =
      read_trace_text(with_events(annotation("PP:(0F3;3B1)OVERLAP_F_B", 0, 100) + ", " + op("aten::mm", 10, 20) + ", " +
                                  op(node.c_str(), 40, 50) + ", " + annotation("gloo:recv", -5, 45)),
                      "t")
          .front()
          .ranges;
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_TRUE(ranges[0].op.paired);
  EXPECT_NEAR(ranges[0].end - ranges[0].start, 30e-6, 1e-9);
  EXPECT_NEAR(ranges[1].received - ranges[0].start, 40e-6, 1e-9);
  EXPECT_NEAR(ranges[1].work_end - ranges[0].start, 100e-6, 1e-9);
}

TEST(RankTraceTest, ReadsCompressedFilesAndRefusesCutOnes) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "rank0.json.gz").string();
  const std::string text = one_trace();
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(file);
  EXPECT_TRUE(is_trace_file(path));
  EXPECT_EQ(read_trace_file(path).front().ranges.size(), read_trace_text(text, "t").front().ranges.size());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THROW((void)read_trace_file(path), ConfigError);
  std::filesystem::remove(path);
  EXPECT_THROW((void)read_trace_file(path), ConfigError);
}

}  // namespace
}  // namespace chimera
