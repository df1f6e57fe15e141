#pragma once
// Colors of all pictures: terminal, SVG and page. The hues are from Okabe and Ito, "Color Universal Design", 2008, for
// any color vision. Color alone carries no information: ops also have letters, replicas of the model (in schedules that
// run pipelines in two directions) have shades and hatches, and causes of idle time have hatches.

#include "schedule/op.h"
#include "schedule/timeline.h"

namespace chimera {

/// A color of the sRGB space, as in HTML.
struct Color {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
  friend bool operator==(const Color&, const Color&) = default;
};

/// Returns the color in hexadecimal, for example `#56b4e9`.
[[nodiscard]] std::string to_hex(Color color);
/// Returns the nearest color, 16 to 231, of the 6 x 6 x 6 cube of 256-color terminals.
[[nodiscard]] int terminal_color(Color color);

/// Returns the color of a kind of op, which is light enough for black text.
[[nodiscard]] Color color_of(OpKind kind);
/// Returns the number of shades of a color that distinguish the slices of a micro-batch (parts of its tokens, with ops
/// of their own): one per slice, but at most 8.
[[nodiscard]] std::size_t num_shades(std::int64_t slices);
/// Returns the shade of a slice, from 0. Neighboring slices have the same shade if there are more slices than shades.
[[nodiscard]] std::size_t shade_of(std::int64_t slice, std::int64_t slices);
/// Returns the color of an op. It is paler for a later replica and for a later shade; `shades` is the number of shades.
[[nodiscard]] Color color_of(OpKind kind, ReplicaId replica, std::size_t num_replicas, std::size_t shade = 0,
                             std::size_t shades = 1);
/// Returns whether ops of the replica are hatched: it is in the second half of the replicas, whose pipelines run from
/// the last worker to the first.
[[nodiscard]] bool is_hatched(ReplicaId replica, std::size_t num_replicas);

inline constexpr Color kAllReduceColor = {0xF0, 0xE4, 0x42};
inline constexpr Color kUpdateColor = {0xCC, 0x79, 0xA7};

/// SVG path of the hatch of replicas (is_hatched()), in a tile of 8 x 8 pixels.
inline constexpr const char* kReplicaTile = "M-2 6l4 4M-2 -2l12 12M6 -2l4 4";

/// Style of idle time with a certain cause.
struct CauseStyle {
  Color light;       // On a white background
  Color dark;        // On a dark background
  const char* tile;  // SVG path of the hatch, in a tile of 8 x 8 pixels
};
/// Returns the style of a cause.
[[nodiscard]] const CauseStyle& style_of(IdleCause cause);

}  // namespace chimera
