#include "transport/group_transport.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "transport/recorder.h"

namespace chimera {
namespace {

TEST(GroupTransportTest, PeersStayInTheGroupAndSumsCrossGroups) {
  Recorder ranks;
  GroupTransport group(ranks, {.workers = 4, .data_parallel = 2, .replicas = ReplicaLayout::Far}, GroupId(1));
  std::array<double, 3> values{};
  static_cast<void>(group.start_send(WorkerId(3), at::zeros({2}), {}));
  static_cast<void>(group.post_receive(WorkerId(1), {{2}, at::kFloat}, {}));
  static_cast<void>(group.start_all_reduce(StageId(2), at::zeros({5})));
  group.all_sum(values);
  EXPECT_THAT(ranks.lines(), ::testing::ElementsAre("send to 7: [2] Float", "receive from 5: [2] Float",
                                                    "all-reduce stage 2: [5] Float", "all-sum: 3"));
}

}  // namespace
}  // namespace chimera
