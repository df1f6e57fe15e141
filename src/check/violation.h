#pragma once
// What check() finds: a fault and its counter-example, in words and as places in the schedule.

#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

enum class ViolationKind : std::uint8_t {
  BadPlacement,     ///< a replica that does not place every stage on a worker
  OutOfRange,       ///< an op with a stage, replica or micro-batch that the schedule does not have
  WrongWorker,      ///< an op on a worker that does not hold its stage
  DoubledOp,        ///< an op that is there twice
  MissingOp,        ///< an op that is not there
  MixedReplicas,    ///< a micro-batch in two replicas
  Cycle,            ///< ops that wait for each other
  BadPair,          ///< two ops that are no pair, or pairs that wait for each other where they run together
  MissingVersion,   ///< an op that uses a weight version which does not exist when it runs
  WrongVersion,     ///< a forward that uses another weight version than the schedule's rule says
  MixedVersions,    ///< forward and backward of a micro-batch at a stage with different weights
  UpdateOrder,      ///< a weight gradient that comes before an earlier update, whose sum it would enter
  TooManyVersions,  ///< more weight versions of a stage kept at once than the schedule says
  OverInFlight,     ///< more activations held than --max-in-flight
  OverMemory,       ///< more bytes held than --memory
  SampleOrder,      ///< gradients accumulated in another order than the replica's samples
  BadDataFlow,      ///< an instruction that uses what is not there, or repeats or leaves out a step
  Mismatch,         ///< a send that meets the receive of another tensor
  AllReduceOrder,   ///< groups whose members start their all-reduces in different orders
  Deadlock,         ///< workers that wait for each other's messages
};

/// `missing_op`: the kind's name in JSON.
[[nodiscard]] const char* to_text(ViolationKind kind);

enum class Severity : std::uint8_t {
  Violation,  ///< the schedule is not valid
  Note,       ///< worth knowing; the schedule is valid
};

struct Violation {
  ViolationKind kind;
  std::string message;        // one line; a cycle's links are joined by "; "
  std::vector<Place> places;  // the counter-example
  Severity severity = Severity::Violation;
};

}  // namespace chimera
