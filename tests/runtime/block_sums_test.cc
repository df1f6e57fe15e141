#include "runtime/gradient_sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace chimera {
namespace {

/// Adds 10^position for every micro-batch, with the given order of replicas: the digits show where each micro-batch
/// went.
std::vector<double> parts(const std::vector<std::pair<int, std::int64_t>>& backwards, std::int64_t block_size) {
  at::Tensor gradients = at::zeros({1}, at::kDouble);
  BlockSums sums(gradients, block_size);
  for (const auto& [replica, position] : backwards) {
    sums.open(ReplicaId(replica));
    gradients.add_(std::pow(10, position));
    sums.close(position);
  }
  std::vector<double> result;
  for (const at::Tensor& part : sums.take()) result.push_back(part.item<double>());
  EXPECT_EQ(gradients.item<double>(), 0);
  return result;
}

TEST(BlockSumsTest, RunsAreCompleteSubtrees) {
  EXPECT_EQ(parts({{0, 0}, {0, 1}, {0, 2}, {0, 3}}, 1), (std::vector<double>{1111}));
  EXPECT_EQ(parts({{0, 1}, {0, 2}, {0, 3}}, 1), (std::vector<double>{10, 1100})) << "blocks 1, and 2 with 3";
  EXPECT_EQ(parts({{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}}, 2), (std::vector<double>{1111, 110000}));
}

TEST(BlockSumsTest, SpareBuffersGrowWithTheLogarithm) {
  EXPECT_EQ(spare_buffers(subtrees_of(0, 1)), 1);
  EXPECT_EQ(spare_buffers(subtrees_of(0, 2)), 1) << "the second block is added where the first stands";
  EXPECT_EQ(spare_buffers(subtrees_of(0, 8)), 3);
  EXPECT_EQ(spare_buffers(subtrees_of(8, 16)), 3);
  EXPECT_EQ(spare_buffers(subtrees_of(0, 7)), 3) << "sums of four and of two, and one block";
  EXPECT_EQ(spare_buffers({}), 0);
}

TEST(BlockSumsTest, ReplicasOnOneWorkerAreKeptApart) {
  EXPECT_EQ(parts({{0, 0}, {1, 2}, {0, 1}, {1, 3}}, 2), (std::vector<double>{11, 1100}));
  EXPECT_EQ(parts({{1, 4}, {0, 0}, {0, 1}, {1, 5}}, 1), (std::vector<double>{11, 110000}));
}

}  // namespace
}  // namespace chimera
