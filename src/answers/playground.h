#pragma once

// JSON interface of the playground, a web page that draws, checks, searches and plans schedules. The page calls
// answer() in WebAssembly; `chimera playground --answer` calls it on the command line and prints the same bytes. The
// field `do` of a request names its kind.

#include <functional>
#include <string>
#include <string_view>

namespace chimera::playground {

/// Function that receives the progress of a search, at most every 0.1 seconds, as a JSON object with `seconds`, and,
/// for the best schedule so far, `makespan` (duration of a step), `lower_bound` (no schedule can be faster) and
/// `origin` (the method that found it).
using Progress = std::function<void(const std::string&)>;

/// Answers a JSON object whose field `do` is `catalog`, `simulate`, `export`, `read`, `check`, `sweep`, `search`,
/// `model` or `plan`; docs/playground.md lists the other fields. Never throws: the answer to an invalid request is
/// {"error": one line with the problem, its place and the expected value}. Deterministic, except for searches with a
/// time limit. The result has no line end.
[[nodiscard]] std::string answer(std::string_view request, const Progress& progress = nullptr);

}  // namespace chimera::playground
