#pragma once

// `chimera profile`: measures a machine for the planner, in concurrent processes as in training. measure_machine()
// alternates the measurements of layer_timer.h, measure_links.h, measure_contention.h and measure_overheads.h until
// the time is over, and returns their medians as a MachineProfile (plan/machine.h).

#include <functional>
#include <string>
#include <vector>

#include "plan/machine.h"
#include "profile/measure_links.h"
#include "transport/transport.h"

namespace chimera {

struct ProfiledModel {
  ModelConfig model = {};
  std::int64_t sequence = 128;
  std::vector<std::int64_t> micro_batch_sizes = {};
};

struct ProfileOptions {
  std::vector<std::string> models = {"gpt2-mini", "bert-tiny"};  // presets or TOML files
  std::vector<std::int64_t> micro_batch_sizes = {1, 2, 4, 8};
  std::int64_t sequence = 128;
  std::vector<ProfiledModel> others = {};
  DataType dtype = DataType::Float32;
  std::int64_t threads = 1;  // intra-op threads of a worker
  double seconds = 45;       // each measurement runs at least a few times
};

/// Two further processes send messages while all cores compute.
struct ProfileRanks {
  int computing = 1;
  int started = 3;
};
[[nodiscard]] ProfileRanks profile_ranks(const ProfileOptions& options, int cores);

/// Throws ConfigError if a model is unknown or too small for the sequence, a size is below 1, `threads` exceeds the
/// cores, or the CPU emulates the type.
void require_measurable(const ProfileOptions& options, int cores);

struct MachineReport {
  MachineProfile machine;
  LinkSamples links;
  std::int64_t rounds = 0;
};

/// Collective; the result is valid on rank 0. The transport has profile_groups().
[[nodiscard]] MachineReport measure_machine(const ProfileOptions& options, Transport& transport, int rank,
                                            const std::function<void(const std::string&)>& say);

/// Returns `machine` with messages, all-reduces and contention of another transport of the same ranks. Otherwise like
/// measure_machine().
[[nodiscard]] MachineProfile with_links_of(Transport& transport, const ProfileOptions& options, int rank,
                                           MachineProfile machine);

[[nodiscard]] std::string to_text(const MachineReport& report);

}  // namespace chimera
