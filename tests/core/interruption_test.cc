
#include "core/signals.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

TEST(InterruptionTest, EndsAComputationWhenRequested) {
  std::atomic<bool> wanted = false;
  const Interruptible scope(wanted);
  EXPECT_NO_THROW(throw_if_interrupted());
  wanted = true;
  EXPECT_THROW(throw_if_interrupted(), Interrupted);
}

TEST(InterruptionTest, HasNoEffectOutsideItsScope) {
  const std::atomic<bool> wanted = true;
  {
    const std::atomic<bool> not_wanted = false;
    const Interruptible outer(wanted);
    {
      const Interruptible inner(not_wanted);
      EXPECT_NO_THROW(throw_if_interrupted());
    }
    EXPECT_THROW(throw_if_interrupted(), Interrupted);
  }
  EXPECT_NO_THROW(throw_if_interrupted());
}

}  // namespace
}  // namespace chimera
