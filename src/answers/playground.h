#pragma once

// JSON interface of the playground, the page in a browser. WebAssembly and `chimera playground --answer` return the
// same bytes. A request names what it wants in the field `do`; schedule_answers.h and planning_answers.h compute the
// answers, and requests.h reads the fields that several requests share.

#include <functional>
#include <string>
#include <string_view>

namespace chimera::playground {

/// Receives the progress of a search, at most every 0.1 seconds: a JSON object with `seconds`, `makespan`,
/// `lower_bound` and `origin`.
using Progress = std::function<void(const std::string&)>;

/// Answers a JSON object whose field `do` is `catalog`, `simulate`, `export`, `read`, `check`, `search`, `model` or
/// `plan`; docs/playground.md lists the other fields. Never throws: the answer to an invalid request is {"error": one
/// line with the problem, its place and the expected value}. Deterministic, except for searches with a time limit. The
/// result has no line end.
[[nodiscard]] std::string answer(std::string_view request, const Progress& progress = nullptr);

}  // namespace chimera::playground
