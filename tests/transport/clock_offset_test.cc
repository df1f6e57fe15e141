#include "transport/clock_offset.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

constexpr double kAhead = 1000;  // seconds

/// Transport of a rank whose clock is kAhead of the machine's. It shifts the times that it sends.
class OtherClock final : public Transport {
 public:
  explicit OtherClock(Transport& transport) : transport_(transport) {}
  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override {
    return transport_.start_send(to, tensor + kAhead, tag);
  }
  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override {
    return transport_.post_receive(from, spec, tag);
  }
  std::unique_ptr<Pending> start_sum(ParameterGroupId, GradientSum) override { return nullptr; }
  std::unique_ptr<Pending> start_all_gather(ParameterGroupId, at::Tensor, const std::vector<std::int64_t>&) override {
    return nullptr;
  }
  void all_sum(std::span<double> values) override {
    if (values.front() != 0) values.front() += kAhead;
    transport_.all_sum(values);
  }

 private:
  Transport& transport_;
};

template <class Measure>
void expect_lead_of_rank_zero(const Measure& measure, const char* uncertainty) {
  std::vector<double> offsets(3);
  run_rank_threads(3, {}, [&](RankId rank, Transport& transport) {
    OtherClock ahead(transport);
    offsets[rank.index()] = measure(rank == RankId(0) ? static_cast<Transport&>(ahead) : transport, rank);
  });
  EXPECT_NEAR(offsets[1], kAhead, 1) << uncertainty;
  EXPECT_NEAR(offsets[2], kAhead, 1);
}

TEST(ClockOffsetTest, IsTheLeadOfRankZerosClock) {
  const auto measure = [](Transport& transport, RankId rank) {
    const double offset = measure_clock_offset(transport, rank, 3);
    if (rank == RankId(0)) EXPECT_EQ(offset, 0);
    return offset;
  };
  expect_lead_of_rank_zero(measure, "half a round trip, on a busy machine");
}

TEST(ClockOffsetTest, SumsMeasureItWithoutMessages) {
  expect_lead_of_rank_zero(clock_offset_by_sums, "the time between two returns");
}

}  // namespace
}  // namespace chimera
