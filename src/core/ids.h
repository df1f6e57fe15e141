#pragma once
// Numbers of stages, workers and so on. Each has a type of its own, so that the compiler rejects a stage that is passed
// as a worker. A model is divided into stages, which the workers of a pipeline hold; several data-parallel groups of
// workers may train copies of the model. docs/glossary.md explains the terms.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace chimera {

/// Number of a thing of kind `Tag`, from 0. Converts only explicitly. `Rep` must be able to hold the value. index() is
/// the value as an index of an array, and requires that it is not negative.
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
/// A member of a data-parallel group. Together, the workers of a group run its pipelines: each holds the weights of its
/// stages, and executes a list of ops. Numbers start at 0 in each group, except in schedules that contain all groups
/// (generate/detours.h).
using WorkerId = Id<struct WorkerTag, std::int32_t>;
/// A full copy of the model on the workers of one data-parallel group. Bidirectional schedules such as `chimera` have
/// several: the stages of a "down" replica are on workers in ascending order, and those of an "up" replica in
/// descending order. The down replicas come first.
using ReplicaId = Id<struct ReplicaTag, std::int16_t>;
/// A data-parallel group: a copy of the whole pipeline with workers of its own. Each group trains on other samples of a
/// step.
using GroupId = Id<struct GroupTag, std::int32_t>;
/// A micro-batch of one data-parallel group; no two replicas have the same one. Numbers start at 0 in each step and
/// group, except in schedules of several steps (passes/unroll.h) or groups (generate/detours.h), where they continue.
/// It is a position in the schedule, not an index into the data.
using MicroBatchId = Id<struct MicroBatchTag, std::int32_t>;

}  // namespace chimera

template <class Tag, class Rep>
struct std::hash<chimera::Id<Tag, Rep>> {
  std::size_t operator()(const chimera::Id<Tag, Rep>& id) const noexcept {
    return std::hash<std::int64_t>{}(id.value());
  }
};
