#include "runtime/weight_versions.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/invariant.h"

namespace chimera {
namespace {

/// y = w x^2: its backward needs w and x.
class Product final : public Stage {
 public:
  Product() : Stage({{"w", at::full({1}, 2.0, at::kDouble)}}) {}
  at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) override {
    static_cast<void>(batch);
    return (weight() * input * input).sum();
  }
  at::Tensor weight() const { return parameters()[0].value; }
};

at::Tensor input(double x) { return at::full({1}, x, at::kDouble).requires_grad_(); }

void halve(Product& stage, WeightVersions& versions) {
  versions.update([&] { stage.weight().mul_(0.5); });
}

TEST(WeightVersionsTest, BackwardUsesTheWeightsOfItsForward) {
  Product stage;
  WeightVersions versions(stage, 0);
  const at::Tensor x = input(3);
  const at::Tensor y = stage.forward(x, {});
  halve(stage, versions);
  EXPECT_EQ(stage.weight().item<double>(), 1);
  versions.use(0);
  y.backward();
  EXPECT_EQ(x.grad().item<double>(), 2 * 2 * 3) << "2 w x with w = 2";
  EXPECT_EQ(stage.gradients().item<double>(), 9);
  versions.use(1);
  EXPECT_EQ(stage.weight().item<double>(), 1);
}

TEST(WeightVersionsTest, EveryVersionIsThereUntilItIsDropped) {
  Product stage;
  WeightVersions versions(stage, 7);
  halve(stage, versions);
  halve(stage, versions);
  EXPECT_EQ(versions.newest(), 9);
  for (const auto& [version, weight] : {std::pair(7, 2.0), {9, 0.5}, {8, 1.0}}) {
    versions.use(version);
    EXPECT_EQ(stage.weight().item<double>(), weight) << version;
  }
  versions.use(9);
  versions.drop(7);
  versions.drop(8);
  EXPECT_THROW(versions.use(8), InternalError);
}

TEST(WeightVersionsTest, DroppedVersionsAreReused) {
  Product stage;
  WeightVersions versions(stage, 0);
  const void* first = stage.weight().data_ptr();
  halve(stage, versions);
  const void* second = stage.weight().data_ptr();
  EXPECT_NE(second, first);
  versions.drop(0);
  halve(stage, versions);
  EXPECT_EQ(stage.weight().data_ptr(), first);
  versions.drop(2);  // the newest version: the next one reuses its memory
  halve(stage, versions);
  EXPECT_EQ(stage.weight().data_ptr(), first);
  EXPECT_EQ(stage.weight().item<double>(), 0.25);
}

}  // namespace
}  // namespace chimera
