#include "render/colors.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace chimera {
namespace {

/// Returns the luminance, from 0 (black) to 1 (white). Source: WCAG 2.2, relative luminance.
double luminance(Color color) {
  const auto linear = [](std::uint8_t value) {
    const double share = value / 255.0;
    return share <= 0.04045 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(color.red) + 0.7152 * linear(color.green) + 0.0722 * linear(color.blue);
}

constexpr std::array kKinds = {OpKind::Forward, OpKind::Backward, OpKind::BackwardInput, OpKind::BackwardWeight};

double distance(Color a, Color b) { return std::hypot(a.red - b.red, a.green - b.green, a.blue - b.blue); }

/// The color as seen with deuteranopia or protanopia: Machado, Oliveira and Fernandes, 2009, severity 1.
Color as_seen(Color color, const std::array<double, 9>& matrix) {
  const auto mixed = [&](std::size_t row) {
    const double value = matrix[row] * color.red + matrix[row + 1] * color.green + matrix[row + 2] * color.blue;
    return static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
  };
  return {mixed(0), mixed(3), mixed(6)};
}

constexpr std::array<double, 9> kDeuteranopia = {0.367322, 0.860646, -0.227968, 0.280085, 0.672501,
                                                 0.047413, -0.01182, 0.04294,   0.968881};
constexpr std::array<double, 9> kProtanopia = {0.152286, 1.052583,  -0.204868, 0.114503, 0.786281,
                                               0.099216, -0.003882, -0.048116, 1.051998};

TEST(ColorsTest, BlackTextIsLegibleOnEveryOp) {
  for (const OpKind kind : kKinds) {
    for (int r = 0; r < 4; ++r) {
      const double contrast = (luminance(color_of(kind, ReplicaId(r), 4)) + 0.05) / 0.05;
      EXPECT_GE(contrast, 4.5) << letter(kind) << " of replica " << r;
      EXPECT_GE(luminance(color_of(kind, ReplicaId(r), 4, 3, 8)), luminance(color_of(kind, ReplicaId(r), 4)));
    }
  }
}

TEST(ColorsTest, UpToEightSlicesHaveShadesOfTheirOwn) {
  EXPECT_EQ(num_shades(1), 1U);
  EXPECT_EQ(shade_of(3, 4), 3U);
  EXPECT_EQ(num_shades(64), 8U);
  EXPECT_EQ(shade_of(63, 64), 7U);
  EXPECT_EQ(color_of(OpKind::Forward, ReplicaId(0), 1, 0, 4), color_of(OpKind::Forward));
  EXPECT_NE(color_of(OpKind::Forward, ReplicaId(0), 1, 1, 8), color_of(OpKind::Forward, ReplicaId(0), 1, 2, 8));
}

TEST(ColorsTest, KindsDifferForTheColorBlind) {
  for (const auto& vision : {kDeuteranopia, kProtanopia}) {
    for (const OpKind a : kKinds) {
      for (const OpKind b : kKinds) {
        if (a < b)
          EXPECT_GT(distance(as_seen(color_of(a), vision), as_seen(color_of(b), vision)), 25)
              << letter(a) << " and " << letter(b);
      }
    }
  }
}

TEST(ColorsTest, ReplicasDifferInShadeAndUpReplicasInHatch) {
  EXPECT_EQ(color_of(OpKind::Forward, ReplicaId(0), 2), color_of(OpKind::Forward));
  EXPECT_GT(luminance(color_of(OpKind::Forward, ReplicaId(1), 2)), luminance(color_of(OpKind::Forward)) + 0.2);
  EXPECT_FALSE(is_hatched(ReplicaId(0), 1));
  EXPECT_FALSE(is_hatched(ReplicaId(1), 4));
  EXPECT_TRUE(is_hatched(ReplicaId(2), 4));
}

TEST(ColorsTest, TerminalsShowTheNearestColorOfTheirCube) {
  EXPECT_EQ(terminal_color({0, 0, 0}), 16);
  EXPECT_EQ(terminal_color({255, 255, 255}), 231);
  EXPECT_EQ(terminal_color({95, 135, 175}), 16 + 36 + 12 + 3);
  EXPECT_EQ(to_hex({0x56, 0xB4, 0xE9}), "#56b4e9");
}

TEST(ColorsTest, EveryCauseHasItsOwnNameAndHatch) {
  for (int a = 0; a < kIdleCauses; ++a) {
    for (int b = 0; b < a; ++b) {
      EXPECT_NE(to_text(static_cast<IdleCause>(a)), to_text(static_cast<IdleCause>(b)));
      EXPECT_STRNE(style_of(static_cast<IdleCause>(a)).tile, style_of(static_cast<IdleCause>(b)).tile);
    }
  }
}

}  // namespace
}  // namespace chimera
