// Fuzzes a token shard of llm.c.

#include <algorithm>
#include <span>

#include "data/open_tokens.h"
#include "fuzz/fuzzer.h"

namespace chimera::testing {
namespace {

/// Whatever the header contains, tokens are read within the file, and documents begin within it.
void exercise_tokens(const TokenFile& file) {
  constexpr std::int64_t kMax = 1000;
  const std::int64_t count = std::min(file.size(), kMax);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
  file.read(file.size() - count, tokens);
  require(std::ranges::none_of(tokens, [](std::int64_t token) { return token < 0; }), "ids are not negative");
  std::vector<std::int64_t> starts;
  file.add_document_starts(0, count, starts);
  require(std::ranges::is_sorted(starts), "documents begin in order");
  require(starts.empty() || (starts.front() > 0 && starts.back() < count), "documents begin inside");
}

void exercise_llmc_tokens(std::string_view bytes) {
  DataFile file = file_in_memory(std::as_bytes(std::span(bytes)), kSource);
  auto layout = read_or_refuse([&] { return llmc_layout(file, TokenOptions{}); }).value_or(std::nullopt);
  if (!layout) return;
  const std::int64_t end = layout->offset + layout->count * width_of(layout->type);
  require(layout->count > 0 && end == file.size(), "the tokens fill the file");
  exercise_tokens({std::move(file), std::move(*layout)});
}

}  // namespace

const Fuzzer kLlmcTokens("llmc_tokens", exercise_llmc_tokens);

}  // namespace chimera::testing
