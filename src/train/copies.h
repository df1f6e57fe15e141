#pragma once
// Whether the copies of a stage are still equal, bit by bit: a bit that flipped in memory, a faulty core or a sum that
// went wrong makes them differ, and nothing else would notice.

#include <map>
#include <vector>

#include "core/error.h"
#include "model/parameter_group.h"
#include "train/job.h"
#include "transport/transport.h"

namespace chimera {

/// Ranks that hold the same weights after every step.
struct StageCopies {
  ParameterGroupId group;
  std::vector<RankId> ranks;
};

/// Every stage that several ranks hold. Of an asynchronous schedule these are the ranks of several groups that do the
/// same at the same time.
[[nodiscard]] std::vector<StageCopies> stage_copies(const Job& job);

/// Copies differ: no rank has weights that are known to be right, from which another could go on.
class CopiesDifferError : public Error {
 public:
  using Error::Error;
};
/// The same on the ranks that are not to report it.
class CopiesDifferElsewhereError : public PeerLostError {
 public:
  using PeerLostError::PeerLostError;
};

/// Compares XXH3 hashes (64 bits) of the weights, by one small sum over all ranks, which all call it. `trained`: what
/// this rank holds. Where copies differ it throws CopiesDifferError on a rank with a copy unlike the others', naming it
/// (of two the second: nobody knows which is right), and CopiesDifferElsewhereError on the others.
void require_equal_copies(const std::vector<StageCopies>& copies,
                          const std::map<ParameterGroupId, ParameterGroup*>& trained, RankId rank, std::int64_t step,
                          Transport& transport);

}  // namespace chimera
