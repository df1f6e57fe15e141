#pragma once
// The generators as functions, for tests of one schedule: `gpipe({.stages = 4, .micro_batches = 8})`.

#include "generate/registry.h"

namespace chimera {

struct NamedGenerator {
  const char* name;
  [[nodiscard]] Schedule operator()(const PipelineShape& shape) const { return find_generator(name).generate(shape); }
};

inline constexpr NamedGenerator gpipe{"gpipe"};
inline constexpr NamedGenerator one_f_one_b{"1f1b"};
inline constexpr NamedGenerator interleaved_one_f_one_b{"interleaved-1f1b"};
inline constexpr NamedGenerator combined_one_f_one_b{"combined-1f1b"};
inline constexpr NamedGenerator looped_bfs{"looped-bfs"};
inline constexpr NamedGenerator gems{"gems"};
inline constexpr NamedGenerator chimera{"chimera"};
inline constexpr NamedGenerator chimera_rotated{"chimera-rotated"};
inline constexpr NamedGenerator zb_h1{"zb-h1"};
inline constexpr NamedGenerator zb_h2{"zb-h2"};
inline constexpr NamedGenerator interleaved_zb{"interleaved-zb"};
inline constexpr NamedGenerator zb_v{"zb-v"};
inline constexpr NamedGenerator v_half{"v-half"};
inline constexpr NamedGenerator v_min{"v-min"};
inline constexpr NamedGenerator dualpipe{"dualpipe"};
inline constexpr NamedGenerator dualpipev{"dualpipev"};
inline constexpr NamedGenerator hanayo{"hanayo"};
inline constexpr NamedGenerator hanayo_zb{"hanayo-zb"};
inline constexpr NamedGenerator chimera_zb{"chimera-zb"};
inline constexpr NamedGenerator pipedream{"pipedream"};
inline constexpr NamedGenerator pipedream_two_bw{"pipedream-2bw"};

}  // namespace chimera
