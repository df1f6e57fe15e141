#pragma once

// Answers why a run is slower than predicted: the time of a step as planned and as measured, and the parts of a step. A
// run that is not over, or that was killed, is judged by its flight records (launch/flight/flight_record.h), files in
// which each rank notes the start of every instruction of its last steps. A run that is over has left speed.json, with
// the figures that it printed at its end (train/observe/step_summary.h) and the report as text. `chimera diagnose`
// prints the report.
//
//   flight records -> complete steps of each rank --+
//                                                   +-> SpeedAnalysis -> text, JSON
//   end of a run -> speed.json ---------------------+

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/flight/flight_record.h"
#include "schedule/op.h"

namespace chimera {

/// Mean seconds of a step, by activity of a rank. Their sum is the step time.
struct SpeedParts {
  double ops = 0;       ///< Forwards, backwards and recomputations
  double messages = 0;  ///< Waits for messages of other stages, and for the ends of the rank's own sends
  double sums = 0;      ///< Waits for all-reduces of gradients
  double ranks = 0;     ///< Wait for the slowest rank, when losses and norms are summed at the end of a step
  double updates = 0;   ///< Optimizer steps
  double rest = 0;      ///< Other activities: starts of sends and receives, data, checkpoints, validations
};

/// Mean seconds of an op kind on a stage, over all ranks that hold the stage.
struct OpSpeed {
  OpKind kind = OpKind::Forward;
  std::int64_t stage = 0;
  double seconds = 0;
  double planned = 0;      ///< Seconds that the machine profile predicts; 0: unknown
  double cpu_seconds = 0;  ///< Part of `seconds` in which the rank had a core; 0: unknown
};

/// Total seconds and number of ops of one kind on one stage.
struct OpTotal {
  double seconds = 0;
  double count = 0;
  double cpu_seconds = 0;  ///< Part of `seconds` in which the rank had a core; 0: unknown
};
using OpTotals = std::map<std::pair<std::int64_t, OpKind>, OpTotal>;  // by stage and kind

/// Returns the mean of each kind of op. `planned` is [stage][op kind]: seconds by the machine profile; empty: none.
[[nodiscard]] std::vector<OpSpeed> means_of(const OpTotals& totals, const std::vector<std::vector<double>>& planned);

/// Returns the seconds that the ops of the rank `self` take on other ranks, on average; 0 if one of them runs on no
/// other rank. Stages take different times, so a rank is only compared with ranks that run the same ops. `ranks`:
/// [rank].
[[nodiscard]] double seconds_elsewhere(const std::vector<OpTotals>& ranks, std::size_t self);

/// A rank is slow (a straggler) if its ops take at least this many times as long as elsewhere.
inline constexpr double kStragglerRatio = 1.1;

/// A rank's time per step, and a comparison of its ops with the same ops on other ranks.
struct RankSpeed {
  int rank = 0;
  SpeedParts parts;
  double elsewhere = 0;  ///< Seconds of `parts.ops` on the other ranks, on average; 0: not all of these ops run there
  /// Returns how many times as long as elsewhere the ops take; 1 if unknown.
  [[nodiscard]] double slowdown() const { return elsewhere > 0 ? parts.ops / elsewhere : 1; }
  [[nodiscard]] bool is_straggler() const { return slowdown() >= kStragglerRatio; }
};

/// Where the time of a run's steps went.
struct SpeedAnalysis {
  std::int64_t steps = 0;   ///< Complete steps in the shortest record of a rank, or steps of a run that is over
  double step_seconds = 0;  ///< Median
  double planned = 0;       ///< Seconds of a step in the plan or profile that started the run; 0: none
  double simulated = 0;     ///< Seconds of a step with the measured times of ops; 0: not known
  std::optional<double> others_share = {};  ///< Fraction of the cores' time that other processes used; empty: not known
  std::string busiest_other = {};  ///< Name and share of the busiest process of others (core/core_use.h); empty: none
  std::string profile = {};        ///< Name, file and date of the profile of OpSpeed::planned
  SpeedParts parts;                ///< Mean over ranks
  std::vector<OpSpeed> ops;        ///< By stage and kind
  std::vector<RankSpeed> ranks;    ///< May be empty
};

/// Name of the file in a run's folder that holds to_json() of the whole run.
inline constexpr const char* kSpeedName = "speed.json";

/// Returns the speed of the complete steps in flight records. Excludes the first step of the run, which is slow because
/// it touches memory for the first time. Returns nothing if the records hold no complete step.
[[nodiscard]] std::optional<SpeedAnalysis> speed_of(const Flight& flight);

/// Returns the slow ranks in flight records, ascending; empty if the records hold no complete step.
[[nodiscard]] std::vector<int> stragglers_of(const Flight& flight);
/// Returns a sentence about the load of other processes, or that it is unknown.
[[nodiscard]] std::string load_text(const std::optional<double>& others_share, const std::string& busiest_other);
/// Returns sentences that name the causes of slow steps: a slow rank, other processes, and ops that take longer than in
/// the profile beyond the load of other processes. Without these, a sentence names the longest wait. One sentence is
/// about the load of other processes in any case. The end of a run and `chimera diagnose` print them.
[[nodiscard]] std::vector<std::string> slow_causes(const SpeedAnalysis& report);
/// Returns the section of `chimera diagnose`: step times, parts, ops by stage, stragglers, and slow_causes().
[[nodiscard]] std::string to_text(const SpeedAnalysis& report);
/// Returns the figures, and to_text() as `text`.
[[nodiscard]] nlohmann::ordered_json to_json(const SpeedAnalysis& report);
/// Reads kSpeedName in a run's folder; nothing if there is no such file. Throws ConfigError if it is damaged.
[[nodiscard]] std::optional<nlohmann::ordered_json> read_speed(const std::string& folder);

}  // namespace chimera
