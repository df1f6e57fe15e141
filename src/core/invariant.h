#pragma once
// Checks for states that only a bug of Chimera can cause. They throw InternalError with a message about the missing or
// impossible value, so that a rank reports the bug like any other failure. The executor, for example, uses them for its
// tables of activations, pending transfers and weight versions. Wrong input of users is a ConfigError instead
// (error.h).

#include <string_view>

#include "core/error.h"

namespace chimera {

/// A broken invariant: a bug of Chimera, not an error of its user.
class InternalError : public Error {
 public:
  explicit InternalError(std::string_view what) : Error("internal error: " + std::string(what)) {}
};

/// Throws InternalError with `what` unless `holds`.
inline void require_invariant(bool holds, std::string_view what) {
  if (!holds) throw InternalError(what);
}

/// Removes the entry of `key` from `map` and returns its value. If there is none, throws InternalError with the text
/// that `name()` returns for the missing entry.
template <class Map, class Name>
[[nodiscard]] typename Map::mapped_type take_out(Map& map, const typename Map::key_type& key, const Name& name) {
  auto entry = map.extract(key);
  if (entry.empty()) throw InternalError(std::string(name()) + " is missing");
  return std::move(entry.mapped());
}

}  // namespace chimera
