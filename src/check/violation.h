#pragma once

#include <fmt/format.h>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

// What check() finds: a fault and its counter-example, in words and as places in the schedule.

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

/// Violations as they are found. Of each kind the first kMostListed are kept and the others counted: a file of a few
/// bytes can claim a hundred million missing ops.
class Findings {
 public:
  static constexpr std::size_t kMostListed = 20'000;

  /// `message` makes the text; it is called only for a violation that is kept.
  template <class Message>
  void add(ViolationKind kind, std::vector<Place> places, const Message& message) {
    if (++counts_[static_cast<std::size_t>(kind)] > kMostListed) return;
    listed_.push_back({kind, message(), std::move(places)});
  }

  /// A violation by one op; its message names the place, then says `format` of `parts`.
  template <class... Parts>
  void add_at(const Schedule& schedule, ViolationKind kind, Place place, fmt::format_string<Parts...> format,
              Parts... parts) {
    add(kind, {place}, [&] {
      return fmt::format("worker {}, op {} ({}): {}", place.worker, place.position,
                         to_text(schedule.workers[place.worker][place.position]),
                         fmt::vformat(format, fmt::make_format_args(parts...)));
    });
  }

  /// Adds a line that speaks for many, beyond the bound.
  void add_summary(ViolationKind kind, std::string message) { listed_.push_back({kind, std::move(message), {}}); }

  [[nodiscard]] bool empty() const { return listed_.empty(); }

  /// All of them, and a line for each kind of which there are more.
  [[nodiscard]] std::vector<Violation> take() {
    for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
      if (counts_[kind] <= kMostListed) continue;
      const auto named = static_cast<ViolationKind>(kind);
      listed_.push_back({named, fmt::format("{} more of kind {}", counts_[kind] - kMostListed, to_text(named)), {}});
    }
    return std::move(listed_);
  }

 private:
  std::vector<Violation> listed_;
  std::array<std::size_t, static_cast<std::size_t>(ViolationKind::Deadlock) + 1> counts_{};
};

}  // namespace chimera
