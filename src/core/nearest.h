#pragma once
// "Did you mean ...?": the known name that a mistyped one is nearest to.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// The candidate with the smallest edit distance to `name`, unless all are farther than half its length (at least 2).
/// Ties go to the earlier candidate.
[[nodiscard]] std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates);

/// One line for an unknown name: `unknown schedule 'chimra'; did you mean 'chimera'?`, or the list of legal names where
/// none is near. `what` is the kind of thing named.
[[nodiscard]] std::string unknown_name(std::string_view what, std::string_view name,
                                       std::span<const std::string> candidates);

}  // namespace chimera
