#include "render/bars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BarChart chart() {
  return {"two wholes",
          {{"weights", {0x56, 0xB4, 0xE9}, 'w'}, {"rest", {0xF0, 0xE4, 0x42}, 'r'}},
          {{"first", {1024, 3072}}, {"b", {2048, 0}}}};
}

TEST(BarsTest, TextShowsPartsAsLettersToScale) {
  EXPECT_EQ(to_text(chart(), 8),
            "two wholes\n"
            "first |wwrrrrrr 4 KiB\n"
            "b     |wwww 2 KiB\n"
            "       w weights, r rest\n");
}

TEST(BarsTest, TextOfNothingHasNoLetters) {
  BarChart empty = chart();
  empty.bars = {{"none", {0, 0}}};
  EXPECT_THAT(to_text(empty), HasSubstr("none | 0 B\n"));
}

TEST(BarsTest, PictureHasALabeledBoxForEachPart) {
  const std::string svg = to_svg(chart());
  EXPECT_THAT(svg, HasSubstr("<title>first, weights: 1 KiB</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>first, rest: 3 KiB</title>"));
  EXPECT_THAT(svg, HasSubstr("width=\"480\""));  // 3 of 4 KiB
  EXPECT_THAT(svg, Not(HasSubstr("b, rest")));
}

TEST(BarsTest, PictureEscapesNames) {
  BarChart odd = chart();
  odd.title = "a < b & c";
  odd.bars[0].label = "<script>";
  const std::string svg = to_svg(odd);
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
}

}  // namespace
}  // namespace chimera
