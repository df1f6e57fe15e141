#pragma once
// Small training runs of the built program, and readers of their output.

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "support/program.h"

namespace chimera::testing {

/// `train` on a sample text with 2 sequences of 32 tokens per micro-batch in float64, its metrics in file `metrics` of
/// the directory, where they replace those of an earlier run. Tests cannot override these flags, as a flag may appear
/// only once.
[[nodiscard]] Words small_training(const Scratch& scratch, const std::string& metrics = "metrics.jsonl");

/// Expects that such a run with these flags is refused. Returns the messages.
[[nodiscard]] std::string refusal_of_training(const Words& flags);

/// About 8 KB of sentences of random words, the same at each call.
[[nodiscard]] std::string sample_text();

/// The objects of a metrics file, one per line. An invalid line fails the test.
[[nodiscard]] std::vector<nlohmann::json> read_metrics(const std::string& path);

/// The lines of the directory's `metrics.jsonl`, without fields that depend on clocks and memory, and without `other`.
[[nodiscard]] std::vector<nlohmann::json> numbers_in(const Scratch& scratch, const char* other = "");

/// Step and hash of the parameters, from each line of a metrics file of the directory.
using Hashes = std::vector<std::pair<std::int64_t, std::string>>;
[[nodiscard]] Hashes hashes_in(const Scratch& scratch, const std::string& metrics = "metrics.jsonl");

/// How often the text has the word.
[[nodiscard]] std::size_t occurrences(const std::string& text, const std::string& word);

/// Lines of stderr without progress lines.
[[nodiscard]] std::vector<std::string> complaints(const ProgramResult& result);

}  // namespace chimera::testing
