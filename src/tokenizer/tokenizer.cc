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

class ByteTokenizer final : public Tokenizer {
 public:
  std::int64_t vocabulary_size() const override { return 256; }
  std::unique_ptr<Encoder> make_encoder() const override { return std::make_unique<ByteEncoder>(); }
  std::optional<TokenId> find_token(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<unsigned char>(token.front());
  }
  std::optional<std::string> token_text(TokenId id) const override {
    if (id < 0 || id >= vocabulary_size()) return std::nullopt;
    return std::string(1, static_cast<char>(id));
  }
  std::optional<TokenId> end_of_document() const override { return std::nullopt; }
  std::string decode(std::span<const TokenId> ids, bool) const override {
    std::string bytes;
    for (const TokenId id : ids) bytes += token_text(id).value_or("");
    return with_replacements(bytes);
  }
  bool is_open(TokenId) const override { return false; }
  TokenIds with_special(const TokenIds& text) const override { return text; }
  std::size_t find_cut(std::string_view text, std::size_t least) const override {
    // Any place would do for the ids, but both parts must be valid UTF-8.
    const auto starts_character = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80; };
    for (std::size_t place = text.size(); place-- > std::max<std::size_t>(least, 1);)
      if (starts_character(place)) return place;
    return 0;
  }
};

constexpr std::string_view kReplacementCharacter = "\uFFFD";

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

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
  // Saves the decoding if more tokens are needed in any case.
  if (!all && tokenizer_.is_open(pending_.back())) return "";
  TokenIds ids = context_;
  ids.insert(ids.end(), pending_.begin(), pending_.end());
  // Decoded with the tokens before: decoders may join or drop blanks between tokens.
  std::string text = tokenizer_.decode(ids, with_special_);
  // Perhaps the beginning of a character whose other bytes follow.
  if (!all && text.ends_with(kReplacementCharacter)) return "";
  text.erase(0, tokenizer_.decode(context_, with_special_).size());
  if (text.empty()) return "";  // such as for a special token
  // The next tokens are decoded behind these, and only the text after theirs is new.
  context_ = std::move(pending_);
  pending_.clear();
  return text;
}

}  // namespace chimera
