#include "core/invariant.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "support/message_of.h"

namespace chimera {
namespace {

constexpr auto message_of = [](const auto& act) { return testing::message_of<InternalError>(act, "no error"); };

TEST(InvariantTest, TakesAValueOutOfAMapOnce) {
  std::map<int, std::unique_ptr<int>> map;
  map[3] = std::make_unique<int>(7);
  const auto name = [] { return "request 3"; };
  EXPECT_EQ(*take_out(map, 3, name), 7);
  EXPECT_TRUE(map.empty());
  EXPECT_EQ(message_of([&] { (void)take_out(map, 3, name); }), "internal error: request 3 is missing");
}

TEST(InvariantTest, NamesABrokenInvariant) {
  EXPECT_EQ(message_of([] { require_invariant(false, "a step ended twice"); }), "internal error: a step ended twice");
  EXPECT_EQ(message_of([] { require_invariant(true, "a step ended twice"); }), "no error");
}

}  // namespace
}  // namespace chimera
