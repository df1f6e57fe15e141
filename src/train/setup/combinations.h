#pragma once

// The combinations of options that a run refuses, as data. A *feature* is a property of a job that such a combination
// names, for example one value of an option. docs/combinations.md is printed from the data. To refuse another
// combination, add a row to kCombinations (combinations.cc), and its features if they are new.

#include <nlohmann/json.hpp>

#include "train/setup/job.h"

namespace chimera {

/// Returns the message of the first refused combination in a job that resolve_job() has resolved; empty without one.
[[nodiscard]] std::string find_refusal(const Job& job);

/// Returns an object with `features` (their names, which others each implies, and which the page compares with each
/// other: main features) and `refused` (features, why, and what to do instead). The texts contain placeholders such as
/// T and NAME.
[[nodiscard]] nlohmann::ordered_json combinations_json();

}  // namespace chimera
