#include "runtime/activations.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "runtime/memory_meter.h"

namespace chimera {
namespace {

struct Graph {
  at::Tensor input;
  at::Tensor weight;
  at::Tensor loss;
};

Graph graph_of(SavedTensors* saved) {
  at::manual_seed(1);
  Graph graph{at::rand({64, 64}), at::rand({64, 64}), {}};
  graph.input.requires_grad_();
  graph.weight.requires_grad_();
  const SavedTensors::Scope scope(saved);
  const auto parts = graph.input.mm(graph.weight).tanh().chunk(2, 1);  // two views of one tensor
  graph.loss = (parts[0].exp() * parts[1].t().contiguous().t()).sum();
  return graph;
}

TEST(SavedTensorsTest, BackwardReadsWhatWasMovedAndBack) {
  const Graph expected = graph_of(nullptr);
  expected.loss.backward();
  HostCopies copies(at::kCPU);
  for (int round = 0; round < 2; ++round) {  // the second round uses the same host memory again
    SavedTensors saved;
    const Graph graph = graph_of(&saved);
    saved.offload(copies);
    saved.load(copies);
    saved.await();
    graph.loss.backward();
    EXPECT_TRUE(at::equal(graph.input.grad(), expected.input.grad()));
    EXPECT_TRUE(at::equal(graph.weight.grad(), expected.weight.grad()));
  }
}

TEST(SavedTensorsTest, OffloadingFreesTensorsThatNobodyElseHolds) {
  MemoryMeter meter(1);
  const RankId rank(0);
  const MemoryMeter::Recording recording(meter, rank);
  HostCopies copies(at::kCPU);
  SavedTensors saved;
  at::Tensor held = at::rand({256});
  const auto moved = saved.add(at::rand({256}));
  const auto kept = saved.add(held);
  EXPECT_EQ(meter.usage(rank).live, 2048);
  saved.offload(copies);
  EXPECT_FALSE(moved->defined());
  EXPECT_TRUE(kept->is_alias_of(held));
  EXPECT_EQ(meter.usage(rank).live, 1024) << "the copy in host memory does not count";
  saved.load(copies);
  EXPECT_TRUE(moved->defined());
  EXPECT_EQ(meter.usage(rank).live, 2048);
}

TEST(SavedTensorsTest, LeavesStay) {
  HostCopies copies(at::kCPU);
  SavedTensors saved;
  const auto leaf = saved.add(at::rand({4}).requires_grad_());
  saved.offload(copies);
  EXPECT_TRUE(leaf->requires_grad());
}

}  // namespace
}  // namespace chimera
