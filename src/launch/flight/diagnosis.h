#pragma once

// Finds the rank that stopped a job, the *culprit*, for `chimera diagnose`. It reads the last activities of all ranks
// from their flight recorders (flight_record.h). The last activity of a rank shows which ranks it waits for: a receive
// waits for the sender, an all-reduce for the ranks that have not started it. The culprit waits for no other rank. If
// all ranks wait, as in a deadlock, it is the rank that has waited longest. In this picture, 1B3 is the backward of
// micro-batch 3 at stage 1:
//
//   rank 0 waits for rank 1  ->  rank 1 waits for rank 3  ->  rank 3 is at 1B3: the culprit

#include "launch/flight/flight_record.h"

namespace chimera {

/// Last activity of a rank.
struct RankFinding {
  int rank = 0;
  std::optional<RankProgress> at = {};  ///< Empty if the rank left no record
  double seconds = 0;  ///< In this activity until the verdict; without one, until the last event of any rank
  std::vector<int> waits_for = {};  ///< Ranks; empty if it waits for none
  bool is_absent = false;           ///< Whether the rank was lost before, and the job went on without it
};

/// The rank that stopped the job, and the last activities of all ranks.
struct Diagnosis {
  std::optional<int> culprit;  ///< Nothing if no rank can be named
  bool is_inferred = false;    ///< Whether `culprit` follows only from the waits, not from the launcher's verdict
  std::string op;              ///< Activity of the culprit; may be empty
  std::vector<RankFinding> ranks;
  std::string newest_checkpoint = {};  ///< Path, set by the caller; may be empty
};

/// Takes the culprit from the launcher's verdict (FlightVerdict), if it names one. Otherwise takes the rank whose last
/// activity began first, of the ranks that wait for no other or, if all wait, of all ranks. Excludes ranks that are
/// ending.
[[nodiscard]] Diagnosis diagnose(const Flight& flight);

/// Returns a page of text, with the last `events` events of the culprit.
[[nodiscard]] std::string to_text(const Diagnosis& diagnosis, const Flight& flight, std::size_t events);
/// Returns JSON, with the last `events` events of every rank.
[[nodiscard]] std::string to_json(const Diagnosis& diagnosis, const Flight& flight, std::size_t events);

}  // namespace chimera
