#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "plan/machine.h"
#include "profile/link_bench.h"
#include "transport/transport.h"

// Groups of ranks that sum while a machine is measured.

// `chimera profile`: what layers, messages, sums and updates take on this machine, measured by several processes at
// once, as training runs them.

namespace chimera {

inline const ParameterGroupId kPairGroup(2);       // ranks 0 and 1, behind the stages of a pipeline of two
inline const ParameterGroupId kOtherPairGroup(3);  // they too

/// Groups of ranks that the transport of measure_machine() must have.
[[nodiscard]] inline RankGroups profile_groups() {
  const RankId first(0);
  const RankId second(1);
  return {{first}, {second}, {first, second}, {first, second}};
}

/// A model's layers on micro-batches of those sizes.
struct ProfiledModel {
  ModelConfig model = {};
  std::int64_t sequence = 128;
  std::vector<std::int64_t> micro_batch_sizes = {};
};

struct ProfileOptions {
  std::vector<std::string> models = {"gpt2-mini", "bert-tiny"};  // presets, or TOML files
  std::vector<std::int64_t> micro_batch_sizes = {1, 2, 4, 8};
  std::int64_t sequence = 128;
  std::vector<ProfiledModel> others = {};  // measured too
  DataType dtype = DataType::Float32;
  std::int64_t threads = 1;  // intra-op threads of a worker
  double seconds = 45;       // for the measurements; each is made a few times however long it takes
};

/// How many processes compute at once, and how many there are: two more, which send messages while all cores compute.
struct ProfileRanks {
  int computing = 1;  // as many as the cores have room for
  int started = 3;
};
[[nodiscard]] ProfileRanks profile_ranks(const ProfileOptions& options, int cores);

/// Throws ConfigError where a model is unknown or too small for the sequence, a size is below 1, there are more threads
/// than cores, or the CPU has to emulate the type.
void require_measurable(const ProfileOptions& options, int cores);

struct MachineReport {
  MachineProfile machine;
  LinkSamples links;
  std::int64_t rounds = 0;  // in which each layer was measured
};

/// Measures as one of the ranks; all of them call it, on a transport with profile_groups(). `say` gets a few words now
/// and then. The report is rank 0's.
[[nodiscard]] MachineReport measure_machine(const ProfileOptions& options, Transport& transport, int rank,
                                            const std::function<void(const std::string&)>& say);

/// The same machine, with messages, sums and contention as they are on another transport of the same ranks, which has
/// profile_groups() too. All ranks call it; what rank 0 gets counts.
[[nodiscard]] MachineProfile with_links_of(Transport& transport, const ProfileOptions& options, int rank,
                                           MachineProfile machine);

/// What was measured, as a table.
[[nodiscard]] std::string to_text(const MachineReport& report);

}  // namespace chimera
