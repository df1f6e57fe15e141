#pragma once
// The environment variables through which the launcher tells a rank who it is.

namespace chimera {

inline constexpr const char* kRankVariable = "CHIMERA_RANK";              ///< 0 .. world size - 1
inline constexpr const char* kWorldSizeVariable = "CHIMERA_WORLD_SIZE";   ///< ranks of the job
inline constexpr const char* kStoreVariable = "CHIMERA_STORE";            ///< path of the rendezvous store
inline constexpr const char* kInputVariable = "CHIMERA_INPUT";            ///< path of the job's input; empty: none
inline constexpr const char* kReportVariable = "CHIMERA_REPORT_FD";       ///< descriptor that takes failure reports
inline constexpr const char* kProgressVariable = "CHIMERA_PROGRESS_FD";   ///< descriptor of the ProgressPage
inline constexpr const char* kLauncherVariable = "CHIMERA_LAUNCHER_PID";  ///< process that must be the rank's parent

}  // namespace chimera
