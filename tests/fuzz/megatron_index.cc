// Fuzzes Megatron's index of a token file; the first four bytes are the size of that file.

#include "data/token_file.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "fuzz/fuzzer.h"

namespace chimera::testing {
namespace {

/// Documents follow each other from the first token to the last, and each is found from its own tokens.
void exercise_documents(const MegatronIndex& index, std::int64_t token_bytes) {
  constexpr std::int64_t kMax = 100;
  require(index.document_start(0) == 0, "the first document begins with the first token");
  require(index.document_start(index.documents()) * width_of(index.type()) == token_bytes,
          "the last ends with the last");
  for (std::int64_t document = 0; document < std::min(index.documents(), kMax); ++document) {
    const std::int64_t start = index.document_start(document);
    const std::int64_t end = index.document_start(document + 1);
    require(start < end, "no document is empty");
    require(index.document_of(start) == document && index.document_of(end - 1) == document,
            "a document has its tokens");
  }
}

void exercise_megatron_index(std::string_view bytes) {
  std::uint32_t token_bytes = 0;
  if (bytes.size() < sizeof token_bytes) return;
  std::memcpy(&token_bytes, bytes.data(), sizeof token_bytes);
  const auto rest = std::as_bytes(std::span(bytes.substr(sizeof token_bytes)));
  const auto index = read_or_refuse([&] { return MegatronIndex(file_in_memory(rest, kSource), token_bytes); });
  if (index) exercise_documents(*index, token_bytes);
}

}  // namespace

const Fuzzer kMegatronIndex("megatron_index", exercise_megatron_index);

}  // namespace chimera::testing
