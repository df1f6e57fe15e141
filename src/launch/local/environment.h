#pragma once
// The environment variables through which the launcher tells a rank who it is. Without the last one, users or launchers
// of their own say so (place.h).

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

}  // namespace chimera
