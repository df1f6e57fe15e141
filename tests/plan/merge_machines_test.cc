#include "plan/cluster_profile.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "plan/machines.h"
#include "support/message_of.h"

namespace chimera {
namespace {

TEST(MergeMachinesTest, UnitesLayers) {
  MachineProfile other = round_machine();
  other.name = "other";
  other.layers = {round_layer(LayerKind::Block, "bert-large"), round_layer(LayerKind::Head)};
  other.layers[1].times = {{4, 8, 4, 8, 7, 0.5}, {8, 1, 1, 1, 1, 0}};
  const MachineProfile merged = merge_machines({round_machine(), other});
  ASSERT_EQ(merged.layers.size(), 4U);
  EXPECT_EQ(merged.layers[0], round_machine().layers[0]);
  const auto& head = merged.layers[2].times;
  ASSERT_EQ(head.size(), 4U);
  EXPECT_EQ(head[2], (LayerTime{4, 7, 4, 8, 6, 0.5})) << "measured by both";
  EXPECT_EQ(head[3].micro_batch_size, 8);
  EXPECT_EQ(merged.layers[3].model.name, "bert-large");
  EXPECT_EQ(merged.name, "round + other");
  EXPECT_EQ(merged.sources.size(), 1U);
}

TEST(MergeMachinesTest, LinksMeasuredAcrossNodesReplace) {
  MachineProfile alone = round_machine();
  alone.point_to_point.between_nodes = alone.point_to_point.within_node;
  alone.all_reduce.between_nodes = alone.all_reduce.within_node;
  const MachineProfile merged = merge_machines({round_machine(), alone});
  EXPECT_EQ(merged.point_to_point, round_machine().point_to_point);
  EXPECT_EQ(merged.all_reduce.between_nodes, round_machine().all_reduce.between_nodes);
  EXPECT_EQ(merge_machines({alone, alone}).all_reduce.between_nodes, alone.all_reduce.within_node);
}

TEST(MergeMachinesTest, TakesTheMeanOfTimesAndTheLeastMemory) {
  MachineProfile other = round_machine();
  other.memory_bytes = 2e9;
  other.optimizer_seconds = 1;
  other.matrix_flops = {{DataType::Float32, 300}};
  const MachineProfile merged = merge_machines({round_machine(), other});
  EXPECT_EQ(merged.memory_bytes, 2e9);
  EXPECT_EQ(merged.optimizer_seconds, 5);
  EXPECT_EQ(merged.matrix_flops, (std::map<DataType, double>{{DataType::Float32, 200}})) << "float64 is one's alone";
}

TEST(MergeMachinesTest, SplitLayersStayApartFromWholeOnes) {
  MachineProfile other = round_machine();
  other.op_sum = {2, 4};
  other.layers = {other.layers[1]};
  other.layers[0].tensor_parallel = 2;
  const MachineProfile merged = merge_machines({round_machine(), other});
  ASSERT_EQ(merged.layers.size(), 4U);
  EXPECT_EQ(merged.layers[1].times, round_machine().layers[1].times);
  EXPECT_EQ(merged.layers[3].tensor_parallel, 2);
  EXPECT_EQ(merged.op_sum, other.op_sum) << "one profile alone has such sums";
}

TEST(MergeMachinesTest, RefusesNodesThatDiffer) {
  MachineProfile other = round_machine();
  other.name = "other";
  other.cores = 4;
  EXPECT_EQ(testing::message_of(
                [&] {
                  (void)merge_machines({round_machine(), other});
                },
                "accepted"),
            "profiles 'round' and 'other' differ in cores: 2 and 4; a plan needs equal nodes");
  EXPECT_THROW((void)merge_machines({other}), ConfigError);
}

}  // namespace
}  // namespace chimera
