#include "data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

/// Reads numbers of one type into wider ones.
template <class Stored>
void read_as(const DataFile& file, std::int64_t offset, std::span<std::int64_t> tokens) {
  std::vector<Stored> stored(tokens.size());
  file.read(offset, std::as_writable_bytes(std::span(stored)));
  std::copy(stored.begin(), stored.end(), tokens.begin());
}

}  // namespace

TokenFile::TokenFile(DataFile file, TokenLayout layout, std::int64_t vocabulary)
    : file_(std::move(file)), layout_(std::move(layout)), vocabulary_(vocabulary) {}

void TokenFile::read(std::int64_t first, std::span<std::int64_t> tokens) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (first < 0 || first > size() || count > size() - first) {
    throw std::out_of_range(fmt::format("{}: {} tokens from {} on, of {}", file_.path(), tokens.size(), first, size()));
  }
  const std::int64_t offset = layout_.offset + first * width_of(layout_.type);
  switch (layout_.type) {
    case TokenType::U8: read_as<std::uint8_t>(file_, offset, tokens); break;
    case TokenType::I8: read_as<std::int8_t>(file_, offset, tokens); break;
    case TokenType::I16: read_as<std::int16_t>(file_, offset, tokens); break;
    case TokenType::U16: read_as<std::uint16_t>(file_, offset, tokens); break;
    case TokenType::I32: read_as<std::int32_t>(file_, offset, tokens); break;
    case TokenType::U32: read_as<std::uint32_t>(file_, offset, tokens); break;
    case TokenType::I64: read_as<std::int64_t>(file_, offset, tokens); break;
  }
  require_ids(first, tokens);
}

void TokenFile::require_ids(std::int64_t first, std::span<const std::int64_t> tokens) const {
  const auto wrong = std::find_if(tokens.begin(), tokens.end(),
                                  [this](std::int64_t token) { return token < 0 || token >= vocabulary_; });
  if (wrong == tokens.end()) return;
  throw ConfigError(fmt::format("{}: token {} is {}; the model has the ids 0 to {}", file_.path(),
                                first + (wrong - tokens.begin()), *wrong, vocabulary_ - 1));
}

void TokenFile::add_document_starts(std::int64_t first, std::int64_t count, std::vector<std::int64_t>& starts) const {
  if (count < 2) return;
  if (layout_.index) {
    const MegatronIndex& index = *layout_.index;
    for (std::int64_t document = index.document_of(first) + 1; document < index.documents(); ++document) {
      const std::int64_t start = index.document_start(document);
      if (start >= first + count) return;
      starts.push_back(start);
    }
  } else if (layout_.mark) {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
    read(first, tokens);
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      const std::int64_t separator = layout_.mark->begins ? tokens[i] : tokens[i - 1];
      if (separator == layout_.mark->id) starts.push_back(first + static_cast<std::int64_t>(i));
    }
  }
}

}  // namespace chimera
