#pragma once

#include <functional>
#include <string>
#include <string_view>

// The playground's one door to the scheduling half: a request in JSON, its answer in JSON. The page calls it as
// WebAssembly, `chimera playground --answer` as part of the program, and both give the same bytes.

namespace chimera::playground {

/// Called now and then by requests that take long, with a JSON object that says how far they are.
using Progress = std::function<void(const std::string&)>;

/// What the request asks for: an object with the field `do`, one of `catalog`, `simulate`, `export`, `read`, `check`,
/// `search`, `model` and `plan`, and the fields that docs/playground.md lists. Never throws: where the request is
/// refused, or cannot be answered, the answer is {"error": "one line: what, where, what would be right"}. The same
/// request gets the same answer everywhere, but for searches that are limited by time. Ends with no line end and has
/// none inside.
[[nodiscard]] std::string answer(std::string_view request, const Progress& progress = nullptr);

}  // namespace chimera::playground
