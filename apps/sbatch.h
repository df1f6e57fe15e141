#pragma once
// A plan as a job of SLURM.

#include <cstdint>
#include <string>
#include <vector>

namespace chimera::apps {

struct SlurmJob {
  std::string name;                ///< as `squeue` lists it
  std::string comment;             ///< lines about the plan
  std::int64_t ranks = 1;          ///< D W
  std::int64_t ranks_of_node = 1;  ///< divides them
  std::vector<std::string> flags;  ///< of `chimera train`
};

/// Throws ConfigError where the ranks do not fill whole nodes.
void require_whole_nodes(std::int64_t ranks, std::int64_t ranks_of_node);

/// A script for `sbatch`: asks for the nodes, starts a task for each rank, and is queued again where the run has saved
/// and ended as a signal asked, which SLURM sends two minutes before the time is over. What follows the script on the
/// command line of `sbatch` are further flags of `chimera train`. Throws as require_whole_nodes does.
[[nodiscard]] std::string sbatch_script(const SlurmJob& job);

}  // namespace chimera::apps
