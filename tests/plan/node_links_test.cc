#include "plan/cluster_profile.h"

#include <gtest/gtest.h>

#include "support/message_of.h"

namespace chimera {
namespace {

NodeLinks some_links() {
  return {.messages = {.alpha = 3, .beta = 4, .burst = 1e4},
          .sums = {5, 6},
          .transfers = 7,
          .copies = {8, 9},
          .step_overhead = 0.25,
          .source = "there"};
}

TEST(NodeLinksTest, ReplaceLinksMeasuredOnANode) {
  MachineProfile machine;
  machine.cores = 4;
  machine.threads = 2;
  machine.message_copy = {1, 2};
  machine.step_overhead = 0.5;
  const NodeLinks links = some_links();
  const MachineProfile whole = with_links_between(machine, links);
  EXPECT_EQ(whole.workers_per_node, 2) << "as many as there are cores for";
  EXPECT_EQ(whole.point_to_point.between_nodes, links.messages);
  EXPECT_EQ(whole.all_reduce.between_nodes, links.sums);
  EXPECT_EQ(whole.contention.node_transfers, 7);
  EXPECT_EQ(whole.message_copy, machine.message_copy);
  EXPECT_EQ(whole.node_message_copy, links.copies);
  EXPECT_EQ(whole.step_overhead, 0.75) << "ranks of a node, then nodes";
  EXPECT_EQ(with_links_between(machine, links, 1).step_overhead, 0.25) << "nodes alone";
  EXPECT_EQ(with_links_between(machine, links, 3).workers_per_node, 3);
}

TEST(NodeLinksTest, AreReadBackAsTheyWere) {
  const NodeLinks links = some_links();
  EXPECT_EQ(node_links_from_json(to_json(links), "it"), links);
}

TEST(NodeLinksTest, AMissingEntryIsNamed) {
  EXPECT_EQ(
      testing::message_of([&] { (void)node_links_from_json(R"({"messages": {"alpha": 1}})", "the links between a,b"); },
                          "accepted"),
      "the links between a,b: messages: field 'beta' is missing");
}

}  // namespace
}  // namespace chimera
