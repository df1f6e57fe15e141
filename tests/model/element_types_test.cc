#include "model/element_types.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace chimera {
namespace {

TEST(ElementTypesTest, ConvertsWhatFits) {
  const at::Tensor values = at::tensor({1.0, -65504.0, std::numeric_limits<double>::infinity()}, at::kDouble);
  EXPECT_TRUE(convert(values, ElementType::F16, "w").equal(values.to(at::kHalf)));
  EXPECT_TRUE(convert(values * 1e30, ElementType::BF16, "w").equal((values * 1e30).to(at::kBFloat16)));
}

TEST(ElementTypesTest, RefusesNumbersThatWouldBecomeInfinite) {
  EXPECT_THAT(
      [] {
        (void)convert(at::tensor({1.0, 70000.0}, at::kDouble), ElementType::F16, "h.0.weight");
      },
      ::testing::ThrowsMessage<ConfigError>("h.0.weight: 70000 is too large for F16; give bfloat16"));
}

}  // namespace
}  // namespace chimera
