#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/choices.h"
#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"

// The environment variables through which the launcher tells a rank who it is. Without the last one, users or launchers
// of their own say so (place.h).

// Where launchers other than our own have put this process: torchrun, srun, mpirun, or variables set by hand.

namespace chimera {

inline constexpr const char* kRankVariable = "CHIMERA_RANK";             ///< 0 .. world size - 1
inline constexpr const char* kWorldSizeVariable = "CHIMERA_WORLD_SIZE";  ///< ranks of the job
inline constexpr const char* kStoreVariable = "CHIMERA_STORE";           ///< path of the rendezvous store
inline constexpr const char* kInputVariable = "CHIMERA_INPUT";           ///< path of the job's input; empty: none
inline constexpr const char* kReportVariable = "CHIMERA_REPORT_FD";      ///< descriptor that takes failure reports
inline constexpr const char* kProgressVariable = "CHIMERA_PROGRESS_FD";  ///< descriptor of the ProgressPage
inline constexpr const char* kStartVariable =
    "CHIMERA_START";  ///< how often it was restarted before; fault points read it
inline constexpr const char* kOrdersVariable = "CHIMERA_ORDERS_FD";  ///< descriptor of orders; unset: none will come
inline constexpr const char* kEpochVariable = "CHIMERA_EPOCH";       ///< it begins in; > 0: in the place of another
inline constexpr const char* kLocalRankVariable = "CHIMERA_LOCAL_RANK";        ///< among those of this host
inline constexpr const char* kLocalSizeVariable = "CHIMERA_LOCAL_WORLD_SIZE";  ///< ranks on this host
inline constexpr const char* kMasterAddressVariable = "CHIMERA_MASTER_ADDR";   ///< of the host whose rank 0 listens
inline constexpr const char* kMasterPortVariable = "CHIMERA_MASTER_PORT";
inline constexpr const char* kSecretVariable = "CHIMERA_SECRET";           ///< that whoever joins the job has to know
inline constexpr const char* kSecretFileVariable = "CHIMERA_SECRET_FILE";  ///< its first line is the secret
inline constexpr const char* kPartVariable =
    "CHIMERA_PART_PID";  ///< process of launch --hosts that must be the rank's parent
inline constexpr const char* kLauncherVariable = "CHIMERA_LAUNCHER_PID";  ///< process that must be the rank's parent

/// Who starts the processes of a job.
enum class LauncherKind { Variables, Torchrun, OpenMpi, Slurm, Hydra };
template <>
inline constexpr auto kNames<LauncherKind> = std::to_array<Named<LauncherKind>>({{LauncherKind::Variables, "CHIMERA_*"},
                                                                                 {LauncherKind::Torchrun, "torchrun"},
                                                                                 {LauncherKind::OpenMpi, "Open MPI"},
                                                                                 {LauncherKind::Slurm, "SLURM"},
                                                                                 {LauncherKind::Hydra, "MPICH"}});

/// Environment variables, by name.
using Variables = std::map<std::string, std::string>;
/// Those of this process.
[[nodiscard]] Variables own_variables();

/// One of several processes that a launcher started as one job.
struct RankPlace {
  LauncherKind launcher = LauncherKind::Variables;
  int rank = 0;  ///< 0 .. world_size - 1
  int world_size = 1;
  int local_rank = 0;  ///< among the processes of this host, 0 .. local_size - 1
  int local_size = 1;
  Variables read = {};        ///< the variables that say so
  std::string conflict = {};  ///< how another launcher contradicts them, one line; empty: none does

  [[nodiscard]] bool on_one_host() const { return local_size == world_size; }
};

/// The place that the variables say, by the first launcher that has set any: CHIMERA_*, torchrun, Open MPI, SLURM,
/// MPICH. None where no launcher has, or where our own did (CHIMERA_LAUNCHER_PID). The shell of a SLURM batch script is
/// in no place, its steps are. A second launcher that has started this process as one of several is
/// in conflict, unless they are the same processes, or one a host. Throws ConfigError, one line, where variables are
/// missing, malformed or impossible.
[[nodiscard]] std::optional<RankPlace> find_place(const Variables& variables);

/// The variable in which a launcher gives a process its rank.
[[nodiscard]] const char* rank_variable(LauncherKind launcher);

/// Where the ranks of the place's job meet. On one host: in CHIMERA_STORE, or in a file of this user's own that is
/// called after the launcher's process, as all ranks see it. On several: at MASTER_ADDR:MASTER_PORT
/// (CHIMERA_MASTER_ADDR and CHIMERA_MASTER_PORT before these), with SLURM by default at the step's first node and a
/// port made of the job's number. There CHIMERA_SECRET, or the file that CHIMERA_SECRET_FILE names, is the secret, and
/// GLOO_SOCKET_IFNAME the interface. Throws ConfigError where nothing says where, or the secret is not one; Error where
/// the file's folder cannot be made or is not this user's.
[[nodiscard]] MeetingPoint meeting_point(const RankPlace& place, const Variables& variables);

/// The file in which the ranks of a host meet, while this one joins the others. What an earlier start has left in it is
/// wiped by whoever comes first; at its end rank 0 removes it. Two jobs that one process starts by hand at the same
/// time have the same file, unless CHIMERA_STORE says otherwise.
class MeetingFile {
 public:
  /// Throws Error where the file cannot be made.
  MeetingFile(std::string path, bool removes);
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;
  ~MeetingFile();

 private:
  std::string path_;
  bool removes_;
  FileDescriptor lock_;  // shared by all who use the file
};

/// The names of a list as SLURM writes them: "n[0-2,07],login" is n0, n1, n2, n07, login. Throws ConfigError for
/// brackets that do not close.
[[nodiscard]] std::vector<std::string> expand_hosts(const std::string& list);

}  // namespace chimera
