#pragma once

// Finds the rank that stopped a job, from the flight records of all ranks, for `chimera diagnose`. A rank that waits
// for another names it: a receive waits for the sender, an all-reduce for the members that have not started it. The
// guilty rank waits for nobody, or all wait and it has waited longest.
//
//   rank 0 waits for rank 1  ->  rank 1 waits for rank 3  ->  rank 3 is at 1B3: guilty

#include <optional>
#include <string>
#include <vector>

#include "launch/flight/flight_record.h"

namespace chimera {

struct RankFinding {
  int rank = 0;
  std::optional<RankProgress> at = {};  ///< Empty if the rank left no record
  double seconds = 0;                   ///< Time since this activity, until the job's end
  std::vector<int> waits_for = {};      ///< May be empty
};

struct Diagnosis {
  std::optional<int> guilty;
  bool is_inferred = false;  ///< `guilty` follows only from who waited for whom
  std::string op;            ///< Activity of the guilty rank; may be empty
  std::vector<RankFinding> ranks;
  std::string newest_checkpoint = {};  ///< Path, set by the caller; may be empty
};

/// Takes the guilty rank from the launcher's verdict, if possible. Otherwise chooses the rank with the longest current
/// activity among ranks that wait for no other, or, if all wait, among all. Excludes ranks that are ending.
[[nodiscard]] Diagnosis diagnose(const Flight& flight);

/// Returns a page of text, with the last `events` of the guilty rank.
[[nodiscard]] std::string to_text(const Diagnosis& diagnosis, const Flight& flight, std::size_t events);
/// Returns JSON, with the last `events` of every rank.
[[nodiscard]] std::string to_json(const Diagnosis& diagnosis, const Flight& flight, std::size_t events);

}  // namespace chimera
