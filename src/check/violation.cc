#include "check/violation.h"

namespace chimera {

const char* to_text(ViolationKind kind) {
  switch (kind) {
    case ViolationKind::BadPlacement: return "bad_placement";
    case ViolationKind::OutOfRange: return "out_of_range";
    case ViolationKind::WrongWorker: return "wrong_worker";
    case ViolationKind::DoubledOp: return "doubled_op";
    case ViolationKind::MissingOp: return "missing_op";
    case ViolationKind::MixedReplicas: return "mixed_replicas";
    case ViolationKind::Cycle: return "cycle";
    case ViolationKind::BadPair: return "bad_pair";
    case ViolationKind::MissingVersion: return "missing_version";
    case ViolationKind::WrongVersion: return "wrong_version";
    case ViolationKind::MixedVersions: return "mixed_versions";
    case ViolationKind::UpdateOrder: return "update_order";
    case ViolationKind::TooManyVersions: return "too_many_versions";
    case ViolationKind::OverInFlight: return "over_in_flight";
    case ViolationKind::OverMemory: return "over_memory";
    case ViolationKind::SampleOrder: return "sample_order";
    case ViolationKind::BadDataFlow: return "bad_data_flow";
    case ViolationKind::Mismatch: return "mismatch";
    case ViolationKind::AllReduceOrder: return "all_reduce_order";
    case ViolationKind::Deadlock: return "deadlock";
  }
  return "";
}

}  // namespace chimera
