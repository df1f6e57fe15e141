#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

// What a rank that fails, or outlives the failure of another, tells the launcher: one line of JSON through a pipe that
// all ranks share.

// Who is to blame: pure functions of what the launcher knows about its ranks.

namespace chimera {

/// Why a rank ends, in its own words.
struct FailureReport {
  int rank = 0;
  std::string op;         ///< what it was doing, e.g. "1B3"; empty: not known
  std::string message;    ///< one line
  bool own_cause = true;  ///< false: it ends only because a peer was lost
  bool usage = false;     ///< it ends with ExitCode::Usage, which the launcher may be too quick to see
  bool is_final = false;  ///< a rank in its place would fail too: the others are not to go on with one
  friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

/// How far a rank has come in a recovery.
struct RecoveryNote {
  enum class Kind : std::uint8_t {
    Left,     ///< it has no connection any more, or none yet, and waits for Order::Kind::Join
    Resumed,  ///< it is about to begin the next step
  };
  int rank = 0;
  Kind kind = Kind::Left;
  std::int64_t epoch = 0;  ///< that begins
  std::int64_t step = 0;   ///< of Resumed: the last one that is done, from 1
  friend bool operator==(const RecoveryNote&, const RecoveryNote&) = default;
};

/// The time from the first lost peer to naming a victim for want of a culprit.
inline constexpr std::chrono::milliseconds kVictimGrace{300};

/// One line, newline included, of at most PIPE_BUF bytes, so that a write of it is atomic. A longer message is cut,
/// control characters become blanks, bytes outside UTF-8 become U+FFFD.
[[nodiscard]] std::string to_line(const FailureReport& report);

/// Reads what to_line wrote, without its newline. Nothing for any other text: a rank that wrote it may be beyond sense.
[[nodiscard]] std::optional<FailureReport> parse_report(std::string_view line);

/// The same of a note.
[[nodiscard]] std::string to_line(const RecoveryNote& note);
[[nodiscard]] std::optional<RecoveryNote> parse_note(std::string_view line);

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
