#pragma once
// Colors of all pictures: terminal, SVG and page. The hues are from Okabe and Ito, "Color Universal Design", 2008, for
// any color vision. Color alone carries no information: ops have letters, replicas shades and hatches, causes of idle
// time hatches.

#include <cstdint>
#include <string>

#include "core/ids.h"
#include "schedule/op.h"
#include "schedule/timeline.h"

namespace chimera {

struct Color {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
  friend bool operator==(const Color&, const Color&) = default;
};

/// Example: `#56b4e9`.
[[nodiscard]] std::string to_hex(Color color);
/// Returns the nearest color, 16 to 231, of the 6 x 6 x 6 cube of 256-color terminals.
[[nodiscard]] int terminal_color(Color color);

/// Light enough for black text.
[[nodiscard]] Color color_of(OpKind kind);
/// Number of shades that tell slices apart: one each, at most 8 for all.
[[nodiscard]] std::size_t num_shades(std::int64_t slices);
/// Returns the shade of a slice, from 0: neighboring slices share one if there are more than num_shades().
[[nodiscard]] std::size_t shade_of(std::int64_t slice, std::int64_t slices);
/// Later replicas are paler, and so are later shades.
[[nodiscard]] Color color_of(OpKind kind, ReplicaId replica, std::size_t num_replicas, std::size_t shade = 0,
                             std::size_t shades = 1);
/// Returns whether the replica is in the second half, which runs up and is hatched.
[[nodiscard]] bool is_hatched(ReplicaId replica, std::size_t num_replicas);

inline constexpr Color kAllReduceColor = {0xF0, 0xE4, 0x42};
inline constexpr Color kUpdateColor = {0xCC, 0x79, 0xA7};

/// SVG path of a hatch, in a tile of 8 x 8 pixels.
inline constexpr const char* kReplicaTile = "M-2 6l4 4M-2 -2l12 12M6 -2l4 4";

/// Style of a cause of idle time, on white and dark.
struct CauseStyle {
  Color light;
  Color dark;
  const char* tile;
};
[[nodiscard]] const CauseStyle& style_of(IdleCause cause);

}  // namespace chimera
