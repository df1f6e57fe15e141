#pragma once
// Who is to blame: pure functions of what the launcher knows about its ranks.

#include <optional>
#include <span>
#include <string>

#include "launch/local/failure_report.h"

namespace chimera {

/// How a process ended.
struct Ending {
  enum class Kind { Exited, Killed };
  Kind kind = Kind::Exited;
  int value = 0;  ///< exit code, or the number of the signal
};

/// All that the launcher knows about one rank.
struct RankRecord {
  std::optional<FailureReport> report;  ///< its own words, where it had time for any
  std::optional<Ending> ending;         ///< absent while it runs
  bool out_of_memory = false;           ///< the kernel counted a process ended for want of memory when it was killed
};

/// The part a rank has in the end of the job. A victim ends only because another rank did: it says so in its report, or
/// exits with ExitCode::PeerLost. Every other failure has a cause of its own. kSavedExit is none.
enum class Part { None, Victim, Culprit };
[[nodiscard]] Part part_of(const RankRecord& record);

/// The rank to name. `failures` lists ranks by the order in which they were seen to fail. The first culprit is chosen,
/// except that a rank killed by SIGKILL without a word comes before all others: a lost peer never has that effect.
/// Nothing where there are only victims.
[[nodiscard]] std::optional<int> find_culprit(std::span<const RankRecord> records, std::span<const int> failures);

/// One line without newline: "rank 2 failed at 1B3: out of memory", "rank 2 was killed by signal 9 (Killed)",
/// "rank 2 was killed for want of memory: ...".
[[nodiscard]] std::string describe_failure(int rank, const RankRecord& record);

/// Whether this failure ends the start of a job that could go on without the rank: as it says so, or was used wrongly.
[[nodiscard]] bool is_final(const RankRecord& record);

/// Exit code of a job that ended because of this rank: that of ExitCode::Usage where the rank said so or ended with it,
/// else No.
[[nodiscard]] int job_exit_code(const RankRecord& culprit);

}  // namespace chimera
