#pragma once

// Finds the place of a process that another launcher has started: torchrun, mpirun, srun, or a user who sets
// CHIMERA_RANK by hand. Each launcher sets its own environment variables. The rank joins its job with rendezvous.h.

#include <map>
#include <optional>
#include <string>

#include "core/choices.h"
#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"

// Environment variables of a rank. Other launchers and users do not set kLauncherVariable.

namespace chimera {

inline constexpr const char* kRankVariable = "CHIMERA_RANK";  ///< 0 .. world size - 1
inline constexpr const char* kWorldSizeVariable = "CHIMERA_WORLD_SIZE";
inline constexpr const char* kStoreVariable = "CHIMERA_STORE";       ///< path
inline constexpr const char* kInputVariable = "CHIMERA_INPUT";       ///< Path; may be empty
inline constexpr const char* kReportVariable = "CHIMERA_REPORT_FD";  ///< Descriptor for failure reports
inline constexpr const char* kProgressVariable = "CHIMERA_PROGRESS_FD";
inline constexpr const char* kStartVariable = "CHIMERA_START";       ///< Number of earlier restarts, for fault points
inline constexpr const char* kOrdersVariable = "CHIMERA_ORDERS_FD";  ///< Descriptor of orders; unset without recoveries
inline constexpr const char* kEpochVariable = "CHIMERA_EPOCH";       ///< Initial epoch; > 0 for a replacement
inline constexpr const char* kLocalRankVariable = "CHIMERA_LOCAL_RANK";
inline constexpr const char* kLocalSizeVariable = "CHIMERA_LOCAL_WORLD_SIZE";
inline constexpr const char* kMasterAddressVariable = "CHIMERA_MASTER_ADDR";
inline constexpr const char* kMasterPortVariable = "CHIMERA_MASTER_PORT";
inline constexpr const char* kSecretVariable = "CHIMERA_SECRET";
inline constexpr const char* kSecretFileVariable = "CHIMERA_SECRET_FILE";  ///< File with the secret in its first line
inline constexpr const char* kPartVariable = "CHIMERA_PART_PID";  ///< Process of launch --hosts, the rank's parent
/// Process of the launcher, the rank's parent
inline constexpr const char* kLauncherVariable = "CHIMERA_LAUNCHER_PID";

enum class LauncherKind { Variables, Torchrun, OpenMpi, Slurm, Hydra };
template <>
inline constexpr auto kNames<LauncherKind> = std::to_array<Named<LauncherKind>>({{LauncherKind::Variables, "CHIMERA_*"},
                                                                                 {LauncherKind::Torchrun, "torchrun"},
                                                                                 {LauncherKind::OpenMpi, "Open MPI"},
                                                                                 {LauncherKind::Slurm, "SLURM"},
                                                                                 {LauncherKind::Hydra, "MPICH"}});

using Variables = std::map<std::string, std::string>;
[[nodiscard]] Variables own_variables();

/// Place in a job that another launcher started.
struct RankPlace {
  LauncherKind launcher = LauncherKind::Variables;
  int rank = 0;  ///< 0 .. world_size - 1
  int world_size = 1;
  int local_rank = 0;  ///< 0 .. local_size - 1
  int local_size = 1;
  Variables read = {};
  std::string conflict = {};  ///< Contradiction by another launcher, one line; may be empty

  [[nodiscard]] bool on_one_host() const { return local_size == world_size; }
};

/// Returns the place from the first launcher with variables: CHIMERA_*, torchrun, Open MPI, SLURM, MPICH; nullopt
/// without such variables, or if our launcher started this process (CHIMERA_LAUNCHER_PID). A SLURM batch script has no
/// place, but its steps have. A second launcher of several processes is a conflict, unless it started the same
/// processes or one per host. Throws ConfigError if variables are missing, malformed or impossible, or belong to a
/// launcher of several processes that does not tell their places (PMIX_RANK alone).
[[nodiscard]] std::optional<RankPlace> find_place(const Variables& variables);

/// Returns the variables with which launchers place processes, whether they are complete or not.
[[nodiscard]] Variables launcher_variables(const Variables& variables);

[[nodiscard]] const char* rank_variable(LauncherKind launcher);

}  // namespace chimera
