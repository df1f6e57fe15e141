#pragma once
// What a rank that fails, or outlives the failure of another, tells the launcher: one line of JSON through a pipe that
// all ranks share.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

}  // namespace chimera
