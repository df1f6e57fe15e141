#pragma once

// Messages from ranks to the launcher, and the search for the cause of a failure. Before a rank ends after an error, it
// sends a FailureReport through a pipe. Its connections break, so other ranks fail, too; they are victims, and their
// reports say so. The launcher collects reports and exit codes (RankOutcome). The first rank that failed for a reason
// of its own is the culprit, which the launcher names. During a recovery (recovery.h), ranks send RecoveryNotes through
// the same pipe.

#include <cstdint>
#include <span>
#include <string_view>

#include "launch/local/process.h"

namespace chimera {

/// Why a rank fails: sent by report_failure() as a line of JSON in a pipe that all ranks share, and printed by
/// describe_failure().
struct FailureReport {
  int rank = 0;              ///< Set by report_failure()
  std::string op = {};       ///< Op that failed, such as "1B3"; may be empty
  std::string message = {};  ///< One line
  bool own_cause = true;     ///< False if the rank only lost a peer
  bool usage = false;        ///< Whether the rank ends with ExitCode::Usage
  bool is_final = false;     ///< Whether a replacement of the rank would fail in the same way
  friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

/// Progress of a rank in a recovery (recovery.h).
struct RecoveryNote {
  enum class Kind : std::uint8_t {
    Left,     ///< The rank has left its step, and waits for Order::Kind::Join
    Resumed,  ///< The rank has reconnected, and is about to begin the next step
  };
  int rank = 0;
  Kind kind = Kind::Left;
  std::int64_t generation = 0;  ///< Generation of connections (recovery.h) that the rank joins
  std::int64_t step = 0;        ///< For Resumed: last completed step, from 1
  /// For Resumed: parameter groups that the rank holds now, but did not hold at the launch
  std::vector<std::int64_t> groups = {};
  friend bool operator==(const RecoveryNote&, const RecoveryNote&) = default;
};

/// After the first victim, the launcher waits this long for the failure of a culprit.
inline constexpr std::chrono::milliseconds kVictimGrace{300};

/// Returns ExitCode::PeerLost, Usage or No.
[[nodiscard]] ExitCode exit_code_of(const FailureReport& report);

/// Returns a line with newline, at most PIPE_BUF bytes for an atomic write. Truncates long messages; control characters
/// become spaces, bytes outside UTF-8 U+FFFD.
[[nodiscard]] std::string to_line(const FailureReport& report);

/// Parses to_line() without newline; nullopt for other text.
[[nodiscard]] std::optional<FailureReport> parse_report(std::string_view line);

/// Returns a line with newline, for an atomic write.
[[nodiscard]] std::string to_line(const RecoveryNote& note);
/// Parses to_line() of a note, without newline; nullopt for other text.
[[nodiscard]] std::optional<RecoveryNote> parse_note(std::string_view line);

/// Report and exit status of a rank of the current attempt. An attempt is one start of all ranks.
struct RankOutcome {
  std::optional<FailureReport> report;  ///< Nothing if the rank sent none
  std::optional<Ending> ending;         ///< Nothing while the rank runs
  bool out_of_memory = false;  ///< Whether SIGKILL ended it, and the OOM killer has run since the ranks started
};

/// A victim only lost a peer, according to its report or ExitCode::PeerLost. A rank with another failure is a culprit.
/// Success and kSavedExit (the job has saved a checkpoint after a signal) are not failures.
enum class FailureRole { None, Victim, Culprit };
/// Returns the role of a rank; None also while it runs and has sent no report.
[[nodiscard]] FailureRole failure_role(const RankOutcome& outcome);

/// Returns the first culprit in `failures`, which lists failed ranks in order of detection; nullopt if there are only
/// victims. A rank killed by SIGKILL without a report takes precedence over other culprits, because a lost peer never
/// causes SIGKILL.
[[nodiscard]] std::optional<int> find_culprit(std::span<const RankOutcome> outcomes, std::span<const int> failures);

/// Returns one line without newline: "rank 2 failed at 1B3: out of memory", "rank 2 was killed by signal 9 (Killed)".
[[nodiscard]] std::string describe_failure(int rank, const RankOutcome& outcome);

/// Returns whether a recovery is useless, because a replacement of the rank would fail in the same way.
[[nodiscard]] bool is_final(const RankOutcome& outcome);

/// Returns the exit code of a job without failures: kSavedExit if a rank has saved after a signal, else Success.
[[nodiscard]] int exit_code_without_failure(std::span<const RankOutcome> outcomes);

/// Returns ExitCode::Usage if the rank reported or returned it, else No.
[[nodiscard]] int job_exit_code(const RankOutcome& culprit);

}  // namespace chimera
