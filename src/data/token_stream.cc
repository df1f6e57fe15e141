#include "data/token_stream.h"

#include <fmt/format.h>
#include <algorithm>
#include <stdexcept>

namespace chimera {
namespace {

template <class Stored>
TokenFile file_of(std::span<const Stored> tokens, TokenType type, const std::string& name, std::int64_t vocabulary) {
  TokenLayout layout{.count = static_cast<std::int64_t>(tokens.size()), .type = type};
  return {file_in_memory(std::as_bytes(tokens), name), std::move(layout), vocabulary};
}

}  // namespace

TokenStream::TokenStream(std::vector<TokenFile> files) : files_(std::move(files)), starts_{0} {
  for (const TokenFile& file : files_) starts_.push_back(starts_.back() + file.size());
}

bool TokenStream::separates_documents() const {
  const auto is_text = [](const TokenFile& file) { return file.layout().format == kTextFormat; };
  return std::ranges::any_of(files_, &TokenFile::separates_documents) ||
         (files_.size() > 1 && std::ranges::any_of(files_, is_text));
}

std::vector<TokenStream::Piece> TokenStream::pieces(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || first > size() || count > size() - first)
    throw std::out_of_range(fmt::format("{} tokens from {} on, of {}", count, first, size()));
  std::vector<Piece> all;
  // starts_ ascends, so the file before the first start behind `first` contains it.
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), first);
  for (auto file = static_cast<std::size_t>(after - starts_.begin()) - 1; count > 0; ++file) {
    const std::int64_t in_file = first - starts_[file];
    const std::int64_t taken = std::min(count, files_[file].size() - in_file);
    if (taken > 0) all.push_back({file, in_file, taken});
    first += taken;
    count -= taken;
  }
  return all;
}

void TokenStream::read(std::int64_t first, std::span<std::int64_t> tokens) const {
  for (const Piece& piece : pieces(first, static_cast<std::int64_t>(tokens.size()))) {
    files_[piece.file].read(piece.first, tokens.first(static_cast<std::size_t>(piece.count)));
    tokens = tokens.subspan(static_cast<std::size_t>(piece.count));
  }
}

std::vector<std::int64_t> TokenStream::document_starts(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> starts;
  for (const Piece& piece : pieces(first, count)) {
    const std::int64_t origin = starts_[piece.file] - first;  // relative to `first`
    // A file begins a document unless its marks say otherwise: shards may cut a document in two.
    if (piece.first == 0 && origin > 0 && begins_document(piece.file)) starts.push_back(origin);
    std::vector<std::int64_t> inside;
    files_[piece.file].add_document_starts(piece.first, piece.count, inside);
    for (const std::int64_t start : inside) starts.push_back(start + origin);
  }
  return starts;
}

/// Returns whether the first token of a later file starts a document.
bool TokenStream::begins_document(std::size_t file) const {
  const auto& mark = files_[file].layout().mark;
  if (!mark) return true;
  std::int64_t separator = 0;
  // The first token of this file, or the last token of the file before, whichever the mark is about.
  read(starts_[file] - (mark->begins ? 0 : 1), {&separator, 1});
  return separator == mark->id;
}

TokenView::TokenView(std::shared_ptr<const TokenStream> stream, std::int64_t first, std::int64_t size, std::string name)
    : stream_(std::move(stream)), first_(first), size_(size), name_(std::move(name)) {}

void TokenView::require_inside(std::int64_t first, std::int64_t count) const {
  if (first >= 0 && count >= 0 && first <= size_ && count <= size_ - first) return;
  throw std::out_of_range(fmt::format("{}: {} tokens from {} on, of {}", name_, count, first, size_));
}

std::vector<std::int64_t> TokenView::read(std::int64_t first, std::int64_t count) const {
  require_inside(first, count);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
  stream_->read(first_ + first, tokens);
  return tokens;
}

std::vector<std::int64_t> TokenView::document_starts(std::int64_t first, std::int64_t count) const {
  require_inside(first, count);
  return stream_->document_starts(first_ + first, count);
}

TokenFile tokens_in_memory(std::span<const std::int32_t> tokens, const std::string& name, std::int64_t vocabulary) {
  return file_of(tokens, TokenType::I32, name, vocabulary);
}

TokenView text_in_memory(std::span<const std::uint8_t> text, const std::string& name) {
  std::vector<TokenFile> files;
  // A view of nothing has a stream without files.
  if (!text.empty()) files.push_back(file_of(text, TokenType::U8, name, kByteVocabulary));
  const auto size = static_cast<std::int64_t>(text.size());
  return {std::make_shared<const TokenStream>(std::move(files)), 0, size, name};
}

}  // namespace chimera
