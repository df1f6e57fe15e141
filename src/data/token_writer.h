#pragma once
// Writing files of token ids (token_format.h), so that a file that is not whole never has its final name.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/choices.h"
#include "core/file_descriptor.h"
#include "data/token_format.h"

namespace chimera {

enum class TokenFileFormat : std::uint8_t { Megatron, Llmc, Raw };
template <>
inline constexpr auto kNames<TokenFileFormat> = std::to_array<Named<TokenFileFormat>>(
    {{TokenFileFormat::Megatron, "megatron"}, {TokenFileFormat::Llmc, "llmc"}, {TokenFileFormat::Raw, "raw"}});

/// What the tokens of a vocabulary are stored as. Throws ConfigError where the format has no type for so many.
[[nodiscard]] TokenType token_type(TokenFileFormat format, std::int64_t vocabulary);

/// How much has been written.
struct WrittenTokens {
  std::int64_t tokens = 0;
  std::int64_t documents = 0;      ///< that have ended
  std::int64_t open_document = 0;  ///< tokens of the one that has not
  friend bool operator==(const WrittenTokens&, const WrittenTokens&) = default;
};

/// Writes PREFIX.bin, and for Megatron PREFIX.idx: under those names with `.unfinished` until finish(). Everything
/// throws ConfigError, naming the file, where it cannot be written.
class TokenWriter {
 public:
  /// Whether an earlier writer, with the same arguments, left so much unfinished, and all of it is there.
  [[nodiscard]] static bool has(const std::string& prefix, TokenFileFormat format, std::int64_t vocabulary,
                                const WrittenTokens& written);
  /// Goes on behind `written`, for which has() must be true; or begins anew. Throws ConfigError, too, where another
  /// process writes the same files.
  TokenWriter(std::string prefix, TokenFileFormat format, std::int64_t vocabulary, const WrittenTokens& written = {});

  [[nodiscard]] TokenType type() const { return type_; }
  [[nodiscard]] const WrittenTokens& written() const { return written_; }
  /// Appends tokens, as they lie in memory in type().
  void write(std::string_view tokens);
  void end_document();
  /// Returns when everything that was written is on the disk.
  void save();
  /// Gives the files their names; what had them before is gone.
  void finish();
  /// Deletes what is unfinished.
  void discard();

  /// The names of the files, once they are finished.
  [[nodiscard]] std::string tokens_path() const;
  [[nodiscard]] std::string index_path() const;

 private:
  [[nodiscard]] bool has_index() const { return format_ == TokenFileFormat::Megatron; }
  void flush();
  void write_index();

  std::string prefix_;
  TokenFileFormat format_;
  TokenType type_;
  WrittenTokens written_;
  FileDescriptor tokens_;
  FileDescriptor lengths_;      // std::int32_t of each document, for Megatron
  std::string waiting_tokens_;  // not yet in these files
  std::string waiting_lengths_;
};

}  // namespace chimera
