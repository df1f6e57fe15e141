#pragma once
// Formats of token files: text that was converted to token ids before training. open_tokens.h reads all three, and
// token_writer.h writes them. All numbers are little-endian and packed.
//
// - Megatron: PREFIX.bin holds the tokens of all sequences. PREFIX.idx holds a MegatronIndexHeader and three arrays:
//   std::int32_t lengths[sequences], the number of tokens of each sequence; std::int64_t pointers[sequences], the byte
//   offset of each sequence in .bin; and std::int64_t documents[documents], the first sequence of each document and, as
//   last element, the number of sequences. (Megatron may append a mode byte per sequence; text has no modes.)
// - llm.c: LlmcHeader, then the tokens. A document starts with the end-of-text token.
// - raw (nanoGPT): 16-bit tokens only. A document ends with the end-of-text token.
//
// Sources: Megatron-LM, core/datasets/indexed_dataset.py; llm.c, dev/data/data_common.py; nanoGPT, data/*/prepare.py.

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace chimera {

static_assert(std::endian::native == std::endian::little, "token files are written and read as they lie in memory");

/// Type of a token id in a file.
enum class TokenType : std::uint8_t { U8, I8, I16, U16, I32, U32, I64 };

/// Calls `act` with a value of the type in which tokens are stored, and returns its result.
template <class Act>
constexpr auto with_stored_type(TokenType type, const Act& act) {
  switch (type) {
    case TokenType::U8: return act(std::uint8_t{});
    case TokenType::I8: return act(std::int8_t{});
    case TokenType::I16: return act(std::int16_t{});
    case TokenType::U16: return act(std::uint16_t{});
    case TokenType::I32: return act(std::int32_t{});
    case TokenType::U32: return act(std::uint32_t{});
    case TokenType::I64: break;
  }
  return act(std::int64_t{});
}

/// Returns the number of bytes of a token.
[[nodiscard]] constexpr std::int64_t width_of(TokenType type) {
  return with_stored_type(type, [](auto token) { return std::int64_t{sizeof token}; });
}

// Megatron

inline constexpr std::string_view kMegatronTokensSuffix = ".bin";
inline constexpr std::string_view kMegatronIndexSuffix = ".idx";
inline constexpr std::array<char, 9> kMegatronMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr std::uint64_t kMegatronVersion = 1;

struct [[gnu::packed]] MegatronIndexHeader {
  std::array<char, 9> magic = kMegatronMagic;
  std::uint64_t version = kMegatronVersion;
  std::uint8_t type_code = 0;   ///< type of the tokens, an index of kMegatronTypes
  std::uint64_t sequences = 0;  ///< number of elements of lengths and of pointers
  std::uint64_t documents = 0;  ///< number of elements of documents: number of documents + 1
};
static_assert(sizeof(MegatronIndexHeader) == 34);

/// [code]: the type of Megatron's code, if it has one. There is none for U32; 6 and 7 are float64 and float32.
inline constexpr std::array<std::optional<TokenType>, 9> kMegatronTypes = {
    std::nullopt,   TokenType::U8, TokenType::I8, TokenType::I16, TokenType::I32,
    TokenType::I64, std::nullopt,  std::nullopt,  TokenType::U16};

/// Returns the type of a code, or nothing for other codes.
[[nodiscard]] constexpr std::optional<TokenType> megatron_type(std::uint8_t code) {
  return code < kMegatronTypes.size() ? kMegatronTypes[code] : std::nullopt;
}

/// Returns the type that Megatron chooses for a vocabulary of this size.
[[nodiscard]] constexpr TokenType megatron_type_for(std::int64_t vocabulary) {
  constexpr std::int64_t kFirstWide = 65'500;
  return vocabulary < kFirstWide ? TokenType::U16 : TokenType::I32;
}

// llm.c: the magic of a file says whether the tokens are of GPT-2 or of Llama 3.

inline constexpr std::int32_t kLlmcGpt2Magic = 20240520;
inline constexpr std::int32_t kLlmcGpt2Version = 1;
inline constexpr std::int32_t kLlmcLlama3Magic = 20240801;
inline constexpr std::int32_t kLlmcLlama3Version = 7;
/// The token that starts each document.
inline constexpr std::int32_t kLlmcGpt2EndOfText = 50256;
inline constexpr std::int32_t kLlmcLlama3EndOfText = 128000;

/// First 1024 bytes of a file.
struct LlmcHeader {
  std::int32_t magic = kLlmcGpt2Magic;      ///< or kLlmcLlama3Magic
  std::int32_t version = kLlmcGpt2Version;  ///< or kLlmcLlama3Version
  std::int32_t tokens = 0;                  ///< number of tokens after the header
  std::array<std::int32_t, 253> unused{};
};
static_assert(sizeof(LlmcHeader) == 1024);

/// Returns the type of the tokens, or nothing if magic and version are unknown.
[[nodiscard]] constexpr std::optional<TokenType> llmc_type(const LlmcHeader& header) {
  if (header.magic == kLlmcGpt2Magic && header.version == kLlmcGpt2Version) return TokenType::U16;
  if (header.magic == kLlmcLlama3Magic && header.version == kLlmcLlama3Version) return TokenType::U32;
  return std::nullopt;
}

// raw

inline constexpr std::string_view kRawSuffix = ".bin";
inline constexpr TokenType kRawType = TokenType::U16;

}  // namespace chimera
