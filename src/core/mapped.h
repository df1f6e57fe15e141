#pragma once
// Lists made from other lists.

#include <functional>
#include <type_traits>
#include <vector>

namespace chimera {

/// Returns the results of `function`, which may be a pointer to a member, for all elements of a range, as `Value` or
/// as the function returns them.
template <class Value = void, class Range, class Function>
[[nodiscard]] auto mapped(Range&& range, const Function& function) {
  using Result = std::decay_t<decltype(std::invoke(function, *std::begin(range)))>;
  std::vector<std::conditional_t<std::is_void_v<Value>, Result, Value>> results;
  for (auto&& each : range) results.emplace_back(std::invoke(function, each));
  return results;
}

/// Returns the numbers of these ids, for texts and JSON.
[[nodiscard]] auto numbers_of_ids(const auto& ids) {
  return mapped(ids, [](const auto& id) { return id.value(); });
}

}  // namespace chimera
