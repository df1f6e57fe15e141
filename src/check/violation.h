#pragma once
// An error that a check finds in a schedule (the order of each worker's ops) or a program (the schedule with
// instructions for messages, sums and updates). A Violation has a kind, one line of text, and a counterexample: places
// in the workers' lists of ops or instructions. The checks of this folder collect their errors in Findings and return
// them with take().

#include <fmt/format.h>
#include <array>
#include <utility>

#include "core/choices.h"
#include "schedule/schedule.h"

namespace chimera {

enum class ViolationKind : std::uint8_t {
  BadPlacement,   ///< No or too many replicas, or a replica does not place every stage on a worker
  OutOfRange,     ///< The stage, replica or micro-batch of an op does not exist, or a count of the schedule is invalid
  WrongWorker,    ///< An op is on a worker that does not hold its stage
  DoubledOp,      ///< An op occurs twice, or a backward is both whole and split
  MissingOp,      ///< A micro-batch lacks an op at a stage
  MixedReplicas,  ///< Ops of one micro-batch name two replicas
  Cycle,          ///< Ops wait for each other
  /// A pair is a forward and a backward that a worker runs at the same time (schedule/schedule.h). Its two ops cannot
  /// form one, or pairs of several workers wait for each other.
  BadPair,
  MissingVersion,  ///< An op uses a weight version that does not exist when it runs
  WrongVersion,    ///< A forward uses another weight version than the version that the schedule's rule gives
  MixedVersions,   ///< Forward and backward of a micro-batch at a stage use different versions
  /// An asynchronous schedule updates a stage after every few micro-batches, and a weight gradient of later
  /// micro-batches runs before this update, which would include it.
  UpdateOrder,
  TooManyVersions,  ///< More versions of a stage are kept than the schedule allows
  OverInFlight,     ///< More activations are held than --max-in-flight
  OverMemory,       ///< More bytes are held than --memory
  SampleOrder,      ///< Gradients are not accumulated in the order of the replica's samples
  BadDataFlow,      ///< An instruction uses a value that does not exist, or a needed instruction is missing or repeated
  Mismatch,         ///< A send is matched with a receive of another tensor
  AllReduceOrder,   ///< Workers that take part in the same all-reduces start them in different orders
  Deadlock,         ///< Workers wait for each other
};

/// Names in JSON. Scripts of users read them, so they must not change.
template <>
inline constexpr auto kNames<ViolationKind> = in_order<ViolationKind>(
    "bad_placement", "out_of_range", "wrong_worker", "doubled_op", "missing_op", "mixed_replicas", "cycle", "bad_pair",
    "missing_version", "wrong_version", "mixed_versions", "update_order", "too_many_versions", "over_in_flight",
    "over_memory", "sample_order", "bad_data_flow", "mismatch", "all_reduce_order", "deadlock");

/// An error that a check has found.
struct Violation {
  ViolationKind kind;
  std::string message;        // One line; the workers or ops of a cycle are separated by "; "
  std::vector<Place> places;  // Counterexample: worker and index in its list; may be empty
};

/// Returns, for example, `worker 0, op 3 (0B1)`.
[[nodiscard]] inline std::string describe_op(const Schedule& schedule, Place place) {
  return fmt::format("worker {}, op {} ({})", place.worker, place.position,
                     to_text(schedule.workers[place.worker][place.position], schedule.slices));
}

/// Collects violations: the first kMaxListed of each kind, and the number of the others. The limit exists because even
/// a small file can have 10^8 violations: ops that are missing.
class Findings {
 public:
  static constexpr std::size_t kMaxListed = 20'000;

  /// Adds a violation. Calls `message` for its text only if the violation is kept.
  template <class Message>
  void add(ViolationKind kind, std::vector<Place> places, const Message& message) {
    if (++counts_[static_cast<std::size_t>(kind)] > kMaxListed) return;
    listed_.push_back({kind, message(), std::move(places)});
  }

  /// Adds a violation without places.
  template <class... Parts>
  void add_text(ViolationKind kind, fmt::format_string<Parts...> format, Parts... parts) {
    add(kind, {}, [&] { return fmt::vformat(format, fmt::make_format_args(parts...)); });
  }

  /// Adds a violation at one op. Its text begins with the op's place and name.
  template <class... Parts>
  void add_at(const Schedule& schedule, ViolationKind kind, Place place, fmt::format_string<Parts...> format,
              Parts... parts) {
    add(kind, {place},
        [&] { return describe_op(schedule, place) + ": " + fmt::vformat(format, fmt::make_format_args(parts...)); });
  }

  [[nodiscard]] bool empty() const { return listed_.empty(); }

  /// Returns and removes all kept violations, and one line per kind with the number of the others. Call it once.
  [[nodiscard]] std::vector<Violation> take() {
    for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
      if (counts_[kind] <= kMaxListed) continue;
      const auto named = static_cast<ViolationKind>(kind);
      listed_.push_back({named, fmt::format("{} more of kind {}", counts_[kind] - kMaxListed, to_text(named)), {}});
    }
    return std::move(listed_);
  }

 private:
  std::vector<Violation> listed_;
  std::array<std::size_t, kNames<ViolationKind>.size()> counts_{};
};

}  // namespace chimera
