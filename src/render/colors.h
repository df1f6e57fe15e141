#pragma once
// The one colour language of all pictures: terminal, SVG and page. Hues are those of Okabe and Ito, which readers with
// any colour vision tell apart; what matters is never hue alone: ops carry their letter, replicas a shade and a hatch,
// causes of idle time a hatch each.
// Source: Okabe and Ito, "Color Universal Design", 2008.

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

/// `#56b4e9`.
[[nodiscard]] std::string to_hex(Color color);
/// Luminance from 0 (black) to 1 (white). Source: WCAG 2.2, relative luminance.
[[nodiscard]] double luminance(Color color);
/// The nearest of the 216 colours of the cube that terminals of 256 colours have: 16 to 231.
[[nodiscard]] int terminal_color(Color color);

/// The colour of an op, whatever its replica. Black text is legible on it.
[[nodiscard]] Color color_of(OpKind kind);
/// The colour of an op of one of several replicas: the later the replica, the paler.
[[nodiscard]] Color color_of(OpKind kind, ReplicaId replica, std::size_t num_replicas);
/// Whether the replica's ops are hatched as well: the second half of the replicas, which go up.
[[nodiscard]] bool is_hatched(ReplicaId replica, std::size_t num_replicas);

inline constexpr Color kAllReduceColor = {0xF0, 0xE4, 0x42};
inline constexpr Color kUpdateColor = {0xCC, 0x79, 0xA7};

/// Lines of a hatch: an SVG path in a tile of 8 x 8 pixels.
inline constexpr const char* kReplicaTile = "M-2 6l4 4M-2 -2l12 12M6 -2l4 4";

/// How one cause of idle time is shown, on white and on dark paper.
struct CauseStyle {
  Color light;
  Color dark;
  const char* tile;
};
[[nodiscard]] const CauseStyle& style_of(IdleCause cause);

}  // namespace chimera
