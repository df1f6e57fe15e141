#pragma once
// Numbers of things, one type for each kind of thing, so that a stage is never passed as a worker.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace chimera {

/// Number of a thing of kind `Tag`, from 0. Converts only explicitly.
template <class Tag, class Rep>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::int64_t value) : value_(static_cast<Rep>(value)) {}
  [[nodiscard]] constexpr std::int64_t value() const { return value_; }
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;

 private:
  Rep value_ = 0;
};

/// Consecutive layers of the model; stage 0 is nearest the input.
using StageId = Id<struct StageTag, std::int32_t>;
/// A position in the pipeline, which executes a list of ops.
using WorkerId = Id<struct WorkerTag, std::int32_t>;
/// A full copy of the model. In Chimera the down pipelines' replicas come first.
using ReplicaId = Id<struct ReplicaTag, std::int16_t>;
/// One of the W data-parallel groups, each with its share of the step's samples.
using GroupId = Id<struct GroupTag, std::int32_t>;
/// Input of one op, unique across replicas. A position in the schedule, not an index into the data.
using MicroBatchId = Id<struct MicroBatchTag, std::int32_t>;

}  // namespace chimera

template <class Tag, class Rep>
struct std::hash<chimera::Id<Tag, Rep>> {
  std::size_t operator()(const chimera::Id<Tag, Rep>& id) const noexcept {
    return std::hash<std::int64_t>{}(id.value());
  }
};
