#pragma once
// Every schedule is described by a Generator (generator.h): its name, its rule as text, formulas, and the function that
// makes it. The functions below return the generators of all schedules except Chimera (chimera.h). Only registry.cc
// calls them, to build the registry; all other code finds a schedule there by name.

#include "generate/generator.h"

namespace chimera {

// alternating.cc: one replica of the model; warm-up forwards, then a forward and a backward in turn
[[nodiscard]] Generator gpipe_entry();
[[nodiscard]] Generator one_f_one_b_entry();
[[nodiscard]] Generator interleaved_one_f_one_b_entry();
[[nodiscard]] Generator combined_one_f_one_b_entry();
[[nodiscard]] Generator looped_bfs_entry();
[[nodiscard]] Generator zb_h1_entry();
[[nodiscard]] Generator zb_h2_entry();
[[nodiscard]] Generator interleaved_zb_entry();
[[nodiscard]] Generator pipedream_entry();
[[nodiscard]] Generator pipedream_two_bw_entry();

// two_chunks.cc: one replica that goes down the workers and up again, so that each has two stages
[[nodiscard]] Generator zb_v_entry();
[[nodiscard]] Generator v_half_entry();
[[nodiscard]] Generator v_min_entry();

// dualpipe.cc: forwards and backwards that run as pairs, so that one computes while the other communicates
[[nodiscard]] Generator dualpipe_entry();
[[nodiscard]] Generator dualpipev_entry();

// hanayo.cc: one replica that goes down and up the workers in waves
[[nodiscard]] Generator hanayo_entry();
[[nodiscard]] Generator hanayo_zb_entry();

// Two replicas in opposite directions, of which only one is active at a time
[[nodiscard]] Generator gems_entry();
// Several replicas in the same direction; stage 0 of each replica is on another worker
[[nodiscard]] Generator chimera_rotated_entry();
// Chimera's placement with split backward
[[nodiscard]] Generator chimera_zb_entry();

}  // namespace chimera
