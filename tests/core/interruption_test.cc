// Computations that are given up from outside.

#include "core/signals.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

TEST(InterruptionTest, EndsAComputationOnceItIsWanted) {
  std::atomic<bool> wanted = false;
  const Interruptible scope(wanted);
  EXPECT_NO_THROW(allow_interruption());
  wanted = true;
  EXPECT_THROW(allow_interruption(), Interrupted);
}

TEST(InterruptionTest, MeansNothingOutsideOfItsScope) {
  const std::atomic<bool> wanted = true;
  {
    const std::atomic<bool> not_wanted = false;
    const Interruptible outer(wanted);
    {
      const Interruptible inner(not_wanted);
      EXPECT_NO_THROW(allow_interruption());
    }
    EXPECT_THROW(allow_interruption(), Interrupted);
  }
  EXPECT_NO_THROW(allow_interruption());
}

}  // namespace
}  // namespace chimera
