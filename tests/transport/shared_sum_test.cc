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
  // The second entry: a rank of another host finds this process's ids, descriptor and inode, but another mark.
  EXPECT_EQ(mappable({{memory.address(), mark}, {memory.address(), mark + 1}, {elsewhere, mark}}),
            (std::vector<bool>{true, false, false}));
}

TEST(MappedPeersTest, KeepsRecentlyUsedFilesMapped) {
  const SharedMemory first(8), second(8), third(8);
  MappedPeers peers(2);
  const auto held = peers.at(first.address());
  const auto* again = peers.at(first.address()).get();
  EXPECT_EQ(held.get(), again) << "mapped once";
  *held = std::byte{7};
  EXPECT_EQ(first.data()[0], std::byte{7});
  static_cast<void>(peers.at(second.address()));
  static_cast<void>(peers.at(third.address()));
  EXPECT_EQ(peers.num_files(), 2U);
  EXPECT_EQ(*held, std::byte{7}) << "forgotten, but mapped as long as it is held";
}

TEST(StagingMemoryTest, ReusesReturnedFiles) {
  StagingMemory staging;
  const auto held = staging.take(10'000);
  EXPECT_GE(held->size(), 10'000U);
  for (int i = 0; i < 10; ++i) EXPECT_NE(staging.take(9'000)->data(), held->data());
  EXPECT_EQ(staging.num_files(), 2U);
  EXPECT_GE(staging.take(100'000)->size(), 100'000U);
  EXPECT_EQ(staging.num_files(), 3U);
}

}  // namespace
}  // namespace chimera
