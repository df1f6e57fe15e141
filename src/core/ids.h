#pragma once
// Distinct integer types for the things that are numbered, so that a stage is never passed for a worker.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace chimera {

/// A number that names one thing of the kind `Tag`. Counts from 0; converts only explicitly.
template <class Tag, class Rep>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::int64_t value) : value_(static_cast<Rep>(value)) {}
  /// The number itself, wide enough for arithmetic.
  [[nodiscard]] constexpr std::int64_t value() const { return value_; }
  /// The number as a position in a vector.
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;

 private:
  Rep value_ = 0;
};

/// Consecutive layers of the model; 0 is nearest the input.
using StageId = Id<struct StageTag, std::int32_t>;
/// A place in the pipeline: what runs a list of ops in order.
using WorkerId = Id<struct WorkerTag, std::int32_t>;
/// A full copy of the model; in Chimera the down copies come first, then the up copies.
using ReplicaId = Id<struct ReplicaTag, std::int16_t>;
/// One of the W data-parallel groups: each runs the whole schedule on its share of the step's samples.
using GroupId = Id<struct GroupTag, std::int32_t>;
/// What one op processes; unique across replicas. A place in the schedule, not an index into the data.
using MicroBatchId = Id<struct MicroBatchTag, std::int32_t>;

}  // namespace chimera

template <class Tag, class Rep>
struct std::hash<chimera::Id<Tag, Rep>> {
  std::size_t operator()(const chimera::Id<Tag, Rep>& id) const noexcept {
    return std::hash<std::int64_t>{}(id.value());
  }
};
