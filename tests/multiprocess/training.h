#pragma once
// Small training runs of the built program, and what they write.

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "support/program.h"

namespace chimera::testing {

/// The same arguments in one list.
using Arguments = std::vector<std::string>;
[[nodiscard]] Arguments operator+(Arguments first, const Arguments& second);

/// `train` on a sample text with 2 sequences of 32 tokens a micro-batch in float64, its metrics in `metrics` of the
/// directory. A flag may stand only once, so nothing here can be given anew.
[[nodiscard]] Arguments small_training(const Scratch& scratch, const std::string& metrics = "metrics.jsonl");

/// About 8 KB of sentences of random words, the same at each call.
[[nodiscard]] std::string sample_text();

/// The objects of a metrics file, one a line. A line that is no JSON object fails the test.
[[nodiscard]] std::vector<nlohmann::json> read_metrics(const std::string& path);

/// The lines of its `metrics.jsonl`, without what depends on clocks and memory.
[[nodiscard]] std::vector<nlohmann::json> numbers_in(const Scratch& scratch);

/// What stands on stderr besides progress lines.
[[nodiscard]] std::vector<std::string> complaints(const ProgramResult& result);

}  // namespace chimera::testing
