#include "render/colors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace chimera {
namespace {

constexpr std::array<Color, kOpKinds> kOpColors = {{
    {0x56, 0xB4, 0xE9},  // F, sky blue
    {0xE6, 0x9F, 0x00},  // B, orange
    {0xE8, 0x6A, 0x10},  // I, vermilion, lighter than the original for black text
    {0x1F, 0xB3, 0x8A},  // W, bluish green, lighter for the same reason
}};

// [cause]: paper tones, so that ops stand out; hatches tell the causes apart without color.
constexpr std::array<CauseStyle, kIdleCauses> kCauses = {{
    {{0xF1, 0xF1, 0xF1}, {0x24, 0x28, 0x2D}, "M2 2h1M6 6h1"},                       // Warm-up
    {{0xE0, 0xE0, 0xE0}, {0x33, 0x38, 0x3E}, "M-2 2l4 -4M-2 10l12 -12M6 10l4 -4"},  // Dependency
    {{0xDC, 0xE6, 0xEE}, {0x26, 0x36, 0x44}, "M0 4h8"},                             // Latency
    {{0xF6, 0xF2, 0xC4}, {0x42, 0x3F, 0x1E}, "M4 0v8M0 4h8"},                       // Sync
    {{0xEC, 0xDF, 0xE8}, {0x3C, 0x2C, 0x38}, "M4 0v8"},                             // Imbalance
}};

std::uint8_t towards_white(std::uint8_t value, double share) {
  return static_cast<std::uint8_t>(std::lround(value + (255 - value) * share));
}

// A value belongs to the nearest level: the limits are halfway between two of them.
/// The cube's levels are 0, 95, 135, 175, 215, 255.
int cube_step(std::uint8_t value) { return value < 48 ? 0 : value < 115 ? 1 : (value - 35) / 40; }

}  // namespace

std::string to_hex(Color color) { return fmt::format("#{:02x}{:02x}{:02x}", color.red, color.green, color.blue); }

int terminal_color(Color color) {
  return 16 + 36 * cube_step(color.red) + 6 * cube_step(color.green) + cube_step(color.blue);
}

Color color_of(OpKind kind) { return kOpColors[static_cast<std::size_t>(kind)]; }

std::size_t num_shades(std::int64_t slices) { return static_cast<std::size_t>(std::clamp<std::int64_t>(slices, 1, 8)); }

std::size_t shade_of(std::int64_t slice, std::int64_t slices) {
  return static_cast<std::size_t>(slice) * num_shades(slices) / static_cast<std::size_t>(slices);
}

Color color_of(OpKind kind, ReplicaId replica, std::size_t num_replicas, std::size_t shade, std::size_t shades) {
  // Replica and shade take a color up to halfway to white each, one after the other: the last shade of the last replica
  // is at three quarters.
  constexpr double kPalest = 0.5;
  const auto part = [](auto number, std::size_t count) {
    return count > 1 ? kPalest * static_cast<double>(number) / static_cast<double>(count - 1) : 0;
  };
  const double of_replica = part(replica.value(), num_replicas);
  const double share = of_replica + (1 - of_replica) * part(shade, shades);
  const Color color = color_of(kind);
  return {towards_white(color.red, share), towards_white(color.green, share), towards_white(color.blue, share)};
}

bool is_hatched(ReplicaId replica, std::size_t num_replicas) {
  return 2 * replica.index() >= num_replicas && num_replicas > 1;
}

const CauseStyle& style_of(IdleCause cause) { return kCauses[static_cast<std::size_t>(cause)]; }

}  // namespace chimera
