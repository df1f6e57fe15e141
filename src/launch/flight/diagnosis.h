#pragma once
// Who was guilty of the end of a job, in what, and who waited for whom: decided on its flight records.

#include <optional>
#include <string>
#include <vector>

#include "launch/flight/flight_record.h"

namespace chimera {

/// What a rank was doing when its record ends.
struct RankFinding {
  int rank = 0;
  std::optional<RankProgress> at;  ///< none: it has left no record
  double seconds = 0;              ///< from when it began that until the job's end
  std::vector<int> waits_for;      ///< ranks that had not yet done what it needs to go on; empty: it waits for none
};

struct Diagnosis {
  std::string reason;         ///< the launcher's line; empty: it has left none
  std::optional<int> guilty;  ///< none: no rank is
  bool is_inferred = false;   ///< guilty follows from who waited for whom alone
  std::string op;             ///< what the guilty rank was doing; empty: not known
  std::vector<RankFinding> ranks;
};

/// The rank that the launcher blamed, where it did. Else, of the ranks that wait for none and are not at their end, the
/// one that has been at what it does for longest; where all wait, the one of them that waits for longest.
[[nodiscard]] Diagnosis diagnose(const Flight& flight);

/// One page for people, with the last `events` of the guilty rank.
[[nodiscard]] std::string to_text(const Diagnosis& diagnosis, const Flight& flight, std::size_t events);
/// The same as JSON, with the last `events` of every rank.
[[nodiscard]] std::string to_json(const Diagnosis& diagnosis, const Flight& flight, std::size_t events);

}  // namespace chimera
