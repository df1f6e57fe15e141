#pragma once
// What a training run is asked for: the flags of `chimera train`, with their defaults.

#include <cstdint>
#include <string>

#include "model/config.h"
#include "schedule/schedule.h"

namespace chimera {

struct TrainOptions {
  std::string model = "gpt2-mini";      // a preset, or a TOML file
  ModelOverrides overrides;             // single fields of it
  std::string data;                     // a UTF-8 text file
  std::string schedule = "chimera";     // or "none": unpipelined, one stage in one process
  PipelineShape shape{4, 0, 2};         // micro_batches 0: as many as stages
  std::int64_t data_parallel = 1;       // W: groups that run the schedule side by side
  std::string replica_layout = "near";  // of the ranks; or "far"
  std::string reduction = "natural";    // or "canonical": gradients added in one order, whatever the schedule
  std::int64_t reduction_blocks = 0;    // Q, of canonical; 0: default_reduction_blocks
  std::string sync = "eager-opt";       // or "eager", "post": AllReducePlacement
  bool shard_optimizer = false;         // optimizer state once over the copies of a stage
  std::int64_t micro_batch_size = 4;
  std::int64_t sequence = 128;  // tokens of a sample
  std::int64_t steps = 100;
  std::int64_t seed = 1;
  std::string dtype = "float32";
  std::string optimizer = "adamw";
  double learning_rate = 1e-3;  // the peak
  std::int64_t warmup = 0;      // steps of linear warm-up; then a cosine down to a tenth of the peak
  double weight_decay = 0.01;   // on matrices only
  double clip = 1.0;            // largest global gradient norm; 0: no clipping
  double dropout = 0;           // the probability that an element becomes 0, in [0, 1)
  std::string transport = "processes";
  std::string recompute = "none";   // or "full": stages keep their inputs alone and run forward again before backward
  std::int64_t threads = 0;         // intra-op threads of a rank; 0: cores / ranks, at least 1
  std::int64_t validate_every = 0;  // steps; 0: never
  std::string metrics;              // JSON lines file; empty: none
};

}  // namespace chimera
