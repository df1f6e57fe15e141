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
  // The second is what a rank of another host finds that has this one's process id, descriptor and inode.
  EXPECT_EQ(mappable({{memory.address(), mark}, {memory.address(), mark + 1}, {elsewhere, mark}}),
            (std::vector<bool>{true, false, false}));
}

}  // namespace
}  // namespace chimera
