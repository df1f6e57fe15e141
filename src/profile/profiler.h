#pragma once

// Measures a machine for `chimera profile`; the planner uses the result. As in training, several processes run at the
// same time, and each of them calls measure_machine(). This function runs the measurements of measure_links.h,
// measure_overheads.h, measure_contention.h and layer_timer.h one after another. Most of them repeat for a fixed
// fraction of ProfileOptions::seconds. The medians form a MachineProfile (plan/machine.h).

#include <ATen/core/Tensor.h>
#include "plan/machine.h"
#include "profile/measure_links.h"
#include "transport/transport.h"

namespace chimera {

/// Model for layer measurements, with its sequence length and micro-batch sizes.
struct ProfiledModel {
  ModelConfig model = {};
  std::int64_t sequence = 128;
  std::vector<std::int64_t> micro_batch_sizes = {};
};

/// What `chimera profile` measures, and how long.
struct ProfileOptions {
  std::vector<std::string> models = {"gpt2-mini", "bert-tiny"};  // presets or TOML files
  std::vector<std::int64_t> micro_batch_sizes = {1, 2, 4, 8};
  std::optional<std::int64_t> sequence = std::nullopt;  // By default 128, or a model's positions if they are fewer
  std::vector<ProfiledModel> others = {};               // further models, each with its own sequence and sizes
  std::vector<std::int64_t> tensor_parallel = {2};      // numbers of ranks T that share a layer; each T is measured
                                                        // if so many ranks compute, with models that T divides
  DataType dtype = DataType::Float32;
  std::int64_t threads = 1;  // intra-op threads of a worker
  at::Device device = at::kCPU;
  double seconds = 45;  // for all measurements; it takes longer if they cannot run a few times each
};

/// Number of ranks that a profile needs. Two more ranks than `computing` are started, so that all cores remain busy
/// while ranks 0 and 1 send messages to each other.
struct ProfileRanks {
  int computing = 1;  // number of ranks that together keep all cores busy
  int started = 3;    // number of ranks to start
};
/// Returns the number of ranks for a machine with `cores` cores; each computing rank uses `threads` of them.
[[nodiscard]] ProfileRanks profile_ranks(const ProfileOptions& options, int cores);

/// Returns the groups of ranks that the transport of a profile needs: the groups of lockstep.h, and then, for each T in
/// `tensor_parallel`, the computing ranks in groups of T neighbors.
[[nodiscard]] RankGroups profile_groups(const ProfileOptions& options, int cores);

/// Throws ConfigError if a model is unknown or too small for the sequence, if micro-batch sizes are not ascending from
/// 1 or more, if `threads` exceeds the cores, if the CPU has no instructions for `dtype` and emulates it, or if fewer
/// ranks compute than an element of `tensor_parallel` other than the default.
void require_measurable(const ProfileOptions& options, int cores);

/// Results of measure_machine().
struct MachineMeasurement {
  MachineProfile machine;
  LinkSamples links;        // measured messages and all-reduces, from which the links of `machine` are fitted
  std::int64_t rounds = 0;  // rounds of layer measurements after the warm-up
};

/// Measures the machine. Collective: all started ranks call it. The result is valid on rank 0. `transport` must have
/// the groups of profile_groups(). Calls `report_progress` on every rank with the name of the measurement that begins.
[[nodiscard]] MachineMeasurement measure_machine(const ProfileOptions& options, Transport& transport, int rank,
                                                 const std::function<void(const std::string&)>& report_progress);

/// Returns `machine` with messages, all-reduces and contention measured again over `transport`, another transport than
/// in measure_machine() between the same ranks. Collective; the result is valid on rank 0. The transport must have the
/// groups of profile_groups().
[[nodiscard]] MachineProfile remeasure_links(Transport& transport, const ProfileOptions& options, int rank,
                                             MachineProfile machine);

/// Returns the mean times of the layers of `options.models` and `others` on the devices of ranks 0 .. computing - 1.
/// Collective; valid on rank 0.
[[nodiscard]] std::vector<LayerTimes> measure_device_layers(const ProfileOptions& options, Transport& transport,
                                                            int rank, int computing);

/// Returns a table of the times.
[[nodiscard]] std::string to_text(const std::vector<LayerTimes>& layers);
/// Returns the tables that `chimera profile` prints.
[[nodiscard]] std::string to_text(const MachineMeasurement& report);

}  // namespace chimera
