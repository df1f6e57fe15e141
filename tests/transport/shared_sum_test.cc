#include "transport/gloo/shared_sum.h"

#include <gtest/gtest.h>

#include <cstring>

namespace chimera {
namespace {

TEST(SharedSumTest, OnlyMemoryWithItsMarkCanBeMapped) {
  const SharedMemory memory(sizeof(std::int64_t));
  const std::int64_t mark = 4711;
  std::memcpy(memory.data(), &mark, sizeof mark);
  SharedAddress elsewhere = memory.address();
  elsewhere.process = -1;
  EXPECT_TRUE(can_map(memory.address(), mark));
  EXPECT_FALSE(can_map(memory.address(), mark + 1)) << "a rank of another host: equal ids, descriptor and inode";
  EXPECT_FALSE(can_map(elsewhere, mark));
}

TEST(MappedPeersTest, KeepsFilesMapped) {
  const SharedMemory first(8), second(8), third(8);
  MappedPeers peers(2);
  const auto held = peers.at(first.address());
  const auto* again = peers.at(first.address()).get();
  EXPECT_EQ(held.get(), again) << "mapped once";
  *held = std::byte{7};
  EXPECT_EQ(first.data()[0], std::byte{7});
  static_cast<void>(peers.at(second.address()));
  static_cast<void>(peers.at(third.address()));
  EXPECT_EQ(peers.num_files(), 0U);
  EXPECT_EQ(*held, std::byte{7}) << "forgotten, but mapped as long as it is held";
}

TEST(StagingMemoryTest, ReusesReturnedFiles) {
  StagingMemory staging;
  const auto held = staging.take(10'000);
  EXPECT_GE(held->size(), 10'000U);
  const std::byte* second = staging.take(9'000)->data();
  EXPECT_NE(second, held->data());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(staging.take(9'000)->data(), second);
  EXPECT_GE(staging.take(100'000)->size(), 100'000U);
  EXPECT_EQ(staging.take(9'000)->data(), second);
}

}  // namespace
}  // namespace chimera
