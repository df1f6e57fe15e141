#pragma once
// What check() finds: a fault and its counter-example, in words and as places in the schedule.

#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

enum class ViolationKind {
  BadPlacement,   ///< a replica that does not place every stage on a worker
  OutOfRange,     ///< an op with a stage, replica or micro-batch that the schedule does not have
  WrongWorker,    ///< an op on a worker that does not hold its stage
  DoubledOp,      ///< an op that is there twice
  MissingOp,      ///< an op that is not there
  MixedReplicas,  ///< a micro-batch in two replicas
  Cycle,          ///< ops that wait for each other
  BadDataFlow,    ///< an instruction that uses a tensor which is not there
  Mismatch,       ///< a send that meets the receive of another tensor
  Deadlock,       ///< workers that wait for each other's messages
};

struct Violation {
  ViolationKind kind;
  std::string message;        // one line; a cycle's links are joined by "; "
  std::vector<Place> places;  // the counter-example
};

}  // namespace chimera
