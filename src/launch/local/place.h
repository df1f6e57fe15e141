#pragma once

// Finds rank and world size of a process that another launcher has started: torchrun, mpirun, srun, or a user who sets
// CHIMERA_RANK by hand. Each launcher sets its own environment variables. The *place* of a process is its rank and the
// number of all ranks (world size), and the same two numbers for the ranks of its host. rendezvous_point()
// (rendezvous.h) then finds where the ranks of the job meet.

#include "core/choices.h"
#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"
#include "launch/local/process.h"

namespace chimera {

// Environment variables of a rank. The launcher of chimera (launcher.h) sets them for its ranks. Users may set some of
// them by hand, but not kLauncherVariable, by which a process recognizes that this launcher has started it.

inline constexpr const char* kRankVariable = "CHIMERA_RANK";  ///< 0 .. world size - 1
inline constexpr const char* kWorldSizeVariable = "CHIMERA_WORLD_SIZE";
inline constexpr const char* kStoreVariable = "CHIMERA_STORE";       ///< Path of the rendezvous file
inline constexpr const char* kInputVariable = "CHIMERA_INPUT";       ///< Path of LaunchPlan::input; may be empty
inline constexpr const char* kReportVariable = "CHIMERA_REPORT_FD";  ///< Descriptor for failure reports
inline constexpr const char* kProgressVariable =
    "CHIMERA_PROGRESS_FD";  ///< Descriptor of the ProgressPage (launch/flight/progress.h)
inline constexpr const char* kStartVariable = "CHIMERA_START";  ///< Number of earlier restarts (core/fault_point.h)
/// Descriptor from which the rank reads the launcher's orders during a recovery, such as to connect again (recovery.h);
/// unset if the job has no recoveries
inline constexpr const char* kOrdersVariable = "CHIMERA_ORDERS_FD";
/// Generation of connections (recovery.h) that the rank joins; above 0 for a rank that replaces a lost one
inline constexpr const char* kGenerationVariable = "CHIMERA_EPOCH";
inline constexpr const char* kLocalRankVariable = "CHIMERA_LOCAL_RANK";        ///< Rank on this host
inline constexpr const char* kLocalSizeVariable = "CHIMERA_LOCAL_WORLD_SIZE";  ///< Number of ranks on this host
inline constexpr const char* kMasterAddressVariable = "CHIMERA_MASTER_ADDR";   ///< Host of the rendezvous server
inline constexpr const char* kMasterPortVariable = "CHIMERA_MASTER_PORT";      ///< TCP port of this server
inline constexpr const char* kSecretVariable = "CHIMERA_SECRET";               ///< Secret that this server requires
inline constexpr const char* kSecretFileVariable = "CHIMERA_SECRET_FILE";  ///< File with the secret in its first line
/// Process id of the rank's parent: the launcher, or its agent on another host (launch/hosts/remote_rank.h)
inline constexpr const char* kLauncherVariable = "CHIMERA_LAUNCHER_PID";

/// Launchers by the environment variables that they set; Variables: CHIMERA_* that the user sets by hand.
enum class LauncherKind { Variables, Torchrun, OpenMpi, Slurm, Hydra };
template <>
inline constexpr auto kNames<LauncherKind> = in_order<LauncherKind>("CHIMERA_*", "torchrun", "Open MPI", "SLURM",
                                                                    "MPICH");

/// Place of a process in a job that another launcher started.
struct RankPlace {
  LauncherKind launcher = LauncherKind::Variables;
  int rank = 0;  ///< 0 .. world_size - 1
  int world_size = 1;
  int local_rank = 0;         ///< 0 .. local_size - 1
  int local_size = 1;         ///< Number of ranks on this host
  Variables read = {};        ///< Variables from which the place was read, for messages
  std::string conflict = {};  ///< One line about a second launcher with a different place; empty: none

  [[nodiscard]] bool on_one_host() const { return local_size == world_size; }
};

/// Returns the place of the process by the variables of the first of these launchers that are set: CHIMERA_*, torchrun,
/// Open MPI, SLURM, MPICH. Returns nullopt if none are set, or if the launcher of chimera started this process
/// (CHIMERA_LAUNCHER_PID). A SLURM batch script has no place, but the processes that srun starts in it have. If the
/// variables of two launchers contradict each other, RankPlace::conflict says so. It is no contradiction if the second
/// launcher started the same processes, or one process per host. Throws ConfigError if variables are missing, malformed
/// or impossible, or if only variables are set that do not tell rank and world size (PMIX_RANK alone).
[[nodiscard]] std::optional<RankPlace> find_place(const Variables& variables);

/// An error in the place of one rank. Other ranks of its host may have none.
class PlaceError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Throws PlaceError if this process and the neighboring ranks that share its layers (tensor parallelism, `count`
/// ranks) are on several hosts, because they add their results in the memory of a host.
void require_group_on_one_host(const RankPlace& place, int count);

/// Returns the variables with which launchers place processes, whether they are complete or not.
[[nodiscard]] Variables launcher_variables(const Variables& variables);

/// Returns the name of the launcher's variable for the rank, such as `SLURM_PROCID`.
[[nodiscard]] const char* rank_variable(LauncherKind launcher);

}  // namespace chimera
