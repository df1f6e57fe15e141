#pragma once

#include <functional>
#include <string>
#include <string_view>

// JSON interface of the playground. WebAssembly and `chimera playground --answer` return the same bytes.

namespace chimera::playground {

/// Long requests call it with progress as a JSON object.
using Progress = std::function<void(const std::string&)>;

/// Answers an object whose field `do` is `catalog`, `simulate`, `export`, `read`, `check`, `search`, `model` or `plan`;
/// docs/playground.md lists the other fields. Never throws: an invalid request gets {"error": "one line: what, where,
/// what would be right"}. Deterministic, except for searches with a time limit. The result has no line end.
[[nodiscard]] std::string answer(std::string_view request, const Progress& progress = nullptr);

}  // namespace chimera::playground
