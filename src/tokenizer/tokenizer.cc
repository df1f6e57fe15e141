#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "tokenizer/unicode.h"

namespace chimera {
namespace {

class ByteEncoder final : public Encoder {
 public:
  void encode(std::string_view text, TokenIds& ids, bool) override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
};

constexpr std::string_view kReplacementCharacter = "\uFFFD";

}  // namespace

std::unique_ptr<Encoder> ByteTokenizer::make_encoder() const { return std::make_unique<ByteEncoder>(); }

std::optional<TokenId> ByteTokenizer::find_token(std::string_view token) const {
  if (token.size() != 1) return std::nullopt;
  return static_cast<unsigned char>(token.front());
}

std::optional<std::string> ByteTokenizer::token_text(TokenId id) const {
  if (id < 0 || id >= vocabulary_size()) return std::nullopt;
  return std::string(1, static_cast<char>(id));
}

std::string ByteTokenizer::decode(std::span<const TokenId> ids, bool) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (id >= 0 && id < vocabulary_size()) bytes += static_cast<char>(id);
  }
  return with_replacements(bytes);
}

Template ByteTokenizer::with_special(const TokenIds& first) const { return {first, TokenIds(first.size(), 0)}; }

Template ByteTokenizer::with_special(const TokenIds& first, const TokenIds& second) const {
  Template both = with_special(first);
  both.ids.insert(both.ids.end(), second.begin(), second.end());
  both.types.resize(both.ids.size(), 1);
  return both;
}

std::size_t ByteTokenizer::find_cut(std::string_view text, std::size_t least) const {
  const auto starts_character = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80; };
  for (std::size_t place = text.size(); place-- > std::max<std::size_t>(least, 1);) {
    if (starts_character(place)) return place;
  }
  return 0;
}

TokenIds encode(const Tokenizer& tokenizer, std::string_view text) {
  TokenIds ids;
  tokenizer.make_encoder()->encode(text, ids);
  return ids;
}

std::string StreamDecoder::push(TokenId id) {
  pending_.push_back(id);
  return take(false);
}

std::string StreamDecoder::finish() { return pending_.empty() ? "" : take(true); }

std::string StreamDecoder::take(bool all) {
  if (!all && tokenizer_.is_open(pending_.back())) return "";
  TokenIds ids = context_;
  ids.insert(ids.end(), pending_.begin(), pending_.end());
  std::string text = tokenizer_.decode(ids, with_special_);
  if (!all && text.ends_with(kReplacementCharacter)) return "";
  text.erase(0, tokenizer_.decode(context_, with_special_).size());
  if (text.empty()) return "";  // such as for a special token
  context_ = std::move(pending_);
  pending_.clear();
  return text;
}

}  // namespace chimera
