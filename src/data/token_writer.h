#pragma once

// Writes token files so that an interrupted `chimera tokenize` can continue. Tokens are appended to files with the
// suffix `.unfinished`. save() makes them durable; the caller (tokenize.h) then records position(), from which a later
// TokenWriter continues. finish() writes the headers and gives the files their final names.

#include "core/choices.h"
#include "core/file_descriptor.h"
#include "data/token_format.h"

namespace chimera {

/// The formats of token_format.h (--format).
enum class TokenFileFormat : std::uint8_t { Megatron, Llmc, Raw };
template <>
inline constexpr auto kNames<TokenFileFormat> = in_order<TokenFileFormat>("megatron", "llmc", "raw");

/// Returns the type in which token ids below `vocabulary` are stored. Throws ConfigError if the vocabulary is too large
/// for the format.
[[nodiscard]] TokenType token_type(TokenFileFormat format, std::int64_t vocabulary);

/// Position in the output.
struct OutputPosition {
  std::int64_t tokens = 0;         ///< all tokens
  std::int64_t documents = 0;      ///< complete documents
  std::int64_t open_document = 0;  ///< tokens of the incomplete document at the end
  friend bool operator==(const OutputPosition&, const OutputPosition&) = default;
};

/// Writes PREFIX.bin, and PREFIX.idx for Megatron, with the suffix `.unfinished` until finish(); the destructor leaves
/// them so. Throws ConfigError if it cannot write, or if a document has too many tokens for the format.
class TokenWriter {
 public:
  /// Returns the paths of the finished files.
  [[nodiscard]] static std::vector<std::string> paths(const std::string& prefix, TokenFileFormat format);
  /// Returns the path of a file before it is finished.
  [[nodiscard]] static std::string unfinished(const std::string& path);
  /// Returns whether unfinished files of an earlier writer exist and hold at least `written`.
  [[nodiscard]] static bool has(const std::string& prefix, TokenFileFormat format, std::int64_t vocabulary,
                                const OutputPosition& written);
  /// Continues after `written` if has() is true; otherwise starts with empty files. Throws ConfigError if another
  /// process writes the files.
  TokenWriter(const std::string& prefix, TokenFileFormat format, std::int64_t vocabulary,
              const OutputPosition& written = {});

  [[nodiscard]] TokenType type() const { return type_; }
  /// Returns the position after everything that was written, saved or not.
  [[nodiscard]] const OutputPosition& position() const { return written_; }
  /// Appends the bytes of whole tokens, stored as type(), to the current document.
  void write(std::string_view tokens);
  /// Ends the current document; the next token begins another one.
  void end_document();
  /// Makes everything written so far durable (fdatasync).
  void save();
  /// Saves everything, writes the headers, and renames the files to paths(). Replaces older files.
  void finish();
  /// Deletes the unfinished files.
  void discard();

 private:
  [[nodiscard]] bool has_index() const { return format_ == TokenFileFormat::Megatron; }
  void flush();
  void write_index();

  std::string tokens_path_;
  std::string index_path_;
  TokenFileFormat format_;
  TokenType type_;
  OutputPosition written_;
  FileDescriptor tokens_;
  FileDescriptor lengths_;      // Megatron: std::int32_t per document
  std::string waiting_tokens_;  // not written yet
  std::string waiting_lengths_;
};

}  // namespace chimera
