#pragma once

// What a rank tells the launcher before it fails, and how the launcher finds the cause. A rank that fails breaks its
// connections, so others fail too: they are victims, and their reports say so. The launcher collects reports and exit
// codes (RankOutcome), and blames the first rank that failed for a reason of its own, the culprit. RecoveryNote uses
// the same pipe for the progress of a recovery.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "launch/local/process.h"

namespace chimera {

/// Why a rank fails: sent as a line of JSON in a pipe that all ranks share, and printed by describe_failure().
struct FailureReport {
  int rank = 0;              ///< Set by report_failure()
  std::string op = {};       ///< E.g. "1B3"; may be empty
  std::string message = {};  ///< one line
  bool own_cause = true;     ///< False if it only lost a peer
  bool usage = false;        ///< It ends with ExitCode::Usage
  bool is_final = false;     ///< A replacement would fail, too
  friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

struct RecoveryNote {
  enum class Kind : std::uint8_t {
    Left,     ///< Waits for Order::Kind::Join
    Resumed,  ///< About to begin the next step
  };
  int rank = 0;
  Kind kind = Kind::Left;
  std::int64_t epoch = 0;
  std::int64_t step = 0;  ///< For Resumed: last completed step, from 1
  friend bool operator==(const RecoveryNote&, const RecoveryNote&) = default;
};

/// Wait for a culprit after the first victim.
inline constexpr std::chrono::milliseconds kVictimGrace{300};

/// Returns ExitCode::PeerLost, Usage or No.
[[nodiscard]] ExitCode exit_code_of(const FailureReport& report);

/// Returns a line with newline, at most PIPE_BUF bytes for an atomic write. Truncates long messages; control characters
/// become spaces, bytes outside UTF-8 U+FFFD.
[[nodiscard]] std::string to_line(const FailureReport& report);

/// Parses to_line() without newline; nullopt for other text.
[[nodiscard]] std::optional<FailureReport> parse_report(std::string_view line);

[[nodiscard]] std::string to_line(const RecoveryNote& note);
[[nodiscard]] std::optional<RecoveryNote> parse_note(std::string_view line);

/// What the launcher has learned about a rank of the current attempt.
struct RankOutcome {
  std::optional<FailureReport> report;  ///< May be empty
  std::optional<Ending> ending;
  bool out_of_memory = false;  ///< After SIGKILL: the OOM killer has run since the ranks started
};

/// A victim only lost a peer, according to its report or ExitCode::PeerLost. Other failures make a culprit; success and
/// kSavedExit are not failures.
enum class FailureRole { None, Victim, Culprit };
[[nodiscard]] FailureRole failure_role(const RankOutcome& outcome);

/// Returns nullopt if there are only victims. `failures` holds ranks in order of detection. A rank killed by SIGKILL
/// without a report takes precedence over other culprits, because losing a peer never causes that.
[[nodiscard]] std::optional<int> find_culprit(std::span<const RankOutcome> outcomes, std::span<const int> failures);

/// Returns one line without newline: "rank 2 failed at 1B3: out of memory", "rank 2 was killed by signal 9 (Killed)".
[[nodiscard]] std::string describe_failure(int rank, const RankOutcome& outcome);

/// Returns whether the failure prevents a recovery.
[[nodiscard]] bool is_final(const RankOutcome& outcome);

/// Returns the exit code of a job without failures: kSavedExit if a rank has saved after a signal, else Success.
[[nodiscard]] int exit_code_without_failure(std::span<const RankOutcome> outcomes);

/// Returns ExitCode::Usage if the rank reported or returned it, else No.
[[nodiscard]] int job_exit_code(const RankOutcome& culprit);

}  // namespace chimera
