#include "data/token_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "core/files.h"
#include "core/reject.h"
#include "data/data_file.h"

// A file has its final name only when it is complete. Until then it ends in .unfinished, is locked by the process that
// writes it, and may be longer than the last saved position: whoever continues truncates it to that position
// (open_at()). Megatron's index cannot be appended to, as its header counts what follows, so the unfinished index is a
// plain list of lengths, from which finish() writes the index.

namespace chimera {
namespace {

constexpr const char* kUnfinished = ".unfinished";
constexpr std::size_t kFlushBytes = std::size_t{1} << 20;
constexpr std::int64_t kMost31Bits = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void cannot_write(const std::string& path, int cause) {
  reject("{}: cannot be written ({})", path, system_message(cause));
}

void write_bytes(const FileDescriptor& file, std::string_view bytes, const std::string& path) {
  if (const int cause = write_all(file.get(), bytes); cause != 0) cannot_write(path, cause);
}

bool has_bytes(const std::string& path, std::int64_t bytes) {
  struct stat status {};
  // It may be longer, by what was written after the last save.
  return ::stat(path.c_str(), &status) == 0 && status.st_size >= bytes;
}

/// False if another process has renamed it since.
bool is_named(const FileDescriptor& file, const std::string& path) {
  struct stat own {};
  struct stat named {};
  return ::fstat(file.get(), &own) == 0 && ::stat(path.c_str(), &named) == 0 && own.st_dev == named.st_dev &&
         own.st_ino == named.st_ino;
}

/// Locks a file and truncates it to `bytes` bytes. Throws ConfigError if another process has locked it.
FileDescriptor open_at(const std::string& path, std::int64_t bytes) {
  make_parent_folders(path);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() < 0) cannot_write(path, errno);
  // The lock ends with the process, so a killed run leaves no stale lock. A run that finished in between has renamed
  // the file that we opened.
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 || !is_named(file, path))
    throw ConfigError(path + ": another run is writing it; wait for its end, or give another --output");
  if (::ftruncate(file.get(), bytes) != 0 || ::lseek(file.get(), 0, SEEK_END) < 0) cannot_write(path, errno);
  return file;
}

void move_into_place(const std::string& path) {
  if (std::rename((path + kUnfinished).c_str(), path.c_str()) != 0) cannot_write(path, errno);
}

template <class Value>
std::string_view bytes_of(const Value* values, std::size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(Value)};
}

std::string tokens_path_of(const std::string& prefix) { return prefix + std::string(kMegatronTokensSuffix); }
std::string index_path_of(const std::string& prefix) { return prefix + std::string(kMegatronIndexSuffix); }

std::int64_t header_bytes_of(TokenFileFormat format) {
  return format == TokenFileFormat::Llmc ? static_cast<std::int64_t>(sizeof(LlmcHeader)) : 0;
}

std::int64_t token_bytes(TokenFileFormat format, TokenType type, const OutputPosition& written) {
  return header_bytes_of(format) + written.tokens * width_of(type);
}

/// Returns the bytes of an unfinished index.
std::int64_t length_bytes(const OutputPosition& written) {
  return static_cast<std::int64_t>(sizeof(std::int32_t)) * written.documents;
}

}  // namespace

TokenType token_type(TokenFileFormat format, std::int64_t vocabulary) {
  // Ids are below the vocabulary, so 65,536 of them fit.
  constexpr std::int64_t kMost16Bits = 65'536;
  switch (format) {
    case TokenFileFormat::Megatron: return megatron_type_for(vocabulary);
    case TokenFileFormat::Llmc: return vocabulary <= kMost16Bits ? TokenType::U16 : TokenType::U32;
    case TokenFileFormat::Raw: break;
  }
  if (vocabulary > kMost16Bits)
    reject(
        "raw token files have 16 bits a token, too few for a vocabulary of {}; give --output-format megatron or llmc",
        vocabulary);
  return kRawType;
}

bool TokenWriter::has(const std::string& prefix, TokenFileFormat format, std::int64_t vocabulary,
                      const OutputPosition& written) {
  if (format == TokenFileFormat::Megatron && !has_bytes(index_path_of(prefix) + kUnfinished, length_bytes(written)))
    return false;
  return has_bytes(tokens_path_of(prefix) + kUnfinished, token_bytes(format, token_type(format, vocabulary), written));
}

std::string TokenWriter::unfinished(const std::string& path) { return path + kUnfinished; }

std::vector<std::string> TokenWriter::paths(const std::string& prefix, TokenFileFormat format) {
  if (format != TokenFileFormat::Megatron) return {tokens_path_of(prefix)};
  return {tokens_path_of(prefix), index_path_of(prefix)};
}

TokenWriter::TokenWriter(const std::string& prefix, TokenFileFormat format, std::int64_t vocabulary,
                         const OutputPosition& written)
    : tokens_path_(tokens_path_of(prefix)),
      index_path_(index_path_of(prefix)),
      format_(format),
      type_(token_type(format, vocabulary)),
      written_(written) {
  if (has_index()) lengths_ = open_at(index_path_ + kUnfinished, length_bytes(written));
  if (written == OutputPosition{}) {
    tokens_ = open_at(tokens_path_ + kUnfinished, 0);
    // Placeholder: finish() writes the header.
    write_bytes(tokens_, std::string(static_cast<std::size_t>(header_bytes_of(format_)), '\0'), tokens_path_);
  } else {
    tokens_ = open_at(tokens_path_ + kUnfinished, token_bytes(format_, type_, written));
  }
}

void TokenWriter::write(std::string_view tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size()) / width_of(type_);
  written_.tokens += count;
  written_.open_document += count;
  if (format_ == TokenFileFormat::Llmc && written_.tokens > kMost31Bits)
    reject("{}: llm.c counts at most {} tokens a file; give fewer files, or another --output-format", tokens_path_,
           kMost31Bits);
  // Buffered: a document has a few hundred tokens, and a system call for each would dominate.
  waiting_tokens_ += tokens;
  if (waiting_tokens_.size() >= kFlushBytes) flush();
}

void TokenWriter::end_document() {
  if (has_index()) {
    if (written_.open_document > kMost31Bits)
      reject(
          "{}: document {} has {} tokens, Megatron's index counts at most {}; give --output-format raw, or divide the "
          "document",
          index_path_, written_.documents + 1, written_.open_document, kMost31Bits);
    const auto length = static_cast<std::int32_t>(written_.open_document);
    waiting_lengths_ += bytes_of(&length, 1);
    if (waiting_lengths_.size() >= kFlushBytes) flush();
  }
  ++written_.documents;
  written_.open_document = 0;
}

void TokenWriter::flush() {
  write_bytes(tokens_, waiting_tokens_, tokens_path_);
  waiting_tokens_.clear();
  if (has_index()) write_bytes(lengths_, waiting_lengths_, index_path_);
  waiting_lengths_.clear();
}

void TokenWriter::save() {
  flush();
  // Both files before PREFIX.resume names these positions: it must never be ahead of them.
  if (has_index() && ::fdatasync(lengths_.get()) != 0) cannot_write(index_path_, errno);
  if (::fdatasync(tokens_.get()) != 0) cannot_write(tokens_path_, errno);
}

void TokenWriter::write_index() {
  const std::string path = index_path_ + kUnfinished;
  const auto documents = static_cast<std::size_t>(written_.documents);
  std::vector<std::int32_t> lengths(documents);
  DataFile(path).read(0, std::as_writable_bytes(std::span(lengths)));
  // The unfinished index holds only lengths; the final one has a header before them, so it is written anew.
  if (::lseek(lengths_.get(), 0, SEEK_SET) < 0 || ::ftruncate(lengths_.get(), 0) != 0) cannot_write(path, errno);
  // token_type() chooses among the types that Megatron has.
  const auto code = std::ranges::find(kMegatronTypes, std::optional(type_)) - kMegatronTypes.begin();
  const MegatronIndexHeader header{
      .type_code = static_cast<std::uint8_t>(code), .sequences = documents, .documents = documents + 1};
  write_bytes(lengths_, bytes_of(&header, 1), path);
  write_bytes(lengths_, bytes_of(lengths.data(), documents), path);
  std::vector<std::int64_t> numbers;
  // Two lists of 64-bit numbers, written in blocks, because together they are four times as large as the lengths.
  const auto put = [&](std::int64_t number) {
    numbers.push_back(number);
    if (numbers.size() < kFlushBytes / sizeof number) return;
    write_bytes(lengths_, bytes_of(numbers.data(), numbers.size()), path);
    numbers.clear();
  };
  std::int64_t pointer = 0;
  for (const std::int32_t length : lengths) {
    put(pointer);
    pointer += length * width_of(type_);
  }
  // Each sequence is a document here, so the list counts 0, 1, 2, ...
  for (std::int64_t document = 0; document <= written_.documents; ++document) put(document);
  write_bytes(lengths_, bytes_of(numbers.data(), numbers.size()), path);
}

void TokenWriter::finish() {
  save();
  if (format_ == TokenFileFormat::Llmc) {
    const bool wide = type_ == TokenType::U32;
    const LlmcHeader header{.magic = wide ? kLlmcLlama3Magic : kLlmcGpt2Magic,
                            .version = wide ? kLlmcLlama3Version : kLlmcGpt2Version,
                            .tokens = static_cast<std::int32_t>(written_.tokens)};
    if (::pwrite(tokens_.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header))
      cannot_write(tokens_path_, errno);
  }
  if (has_index()) {
    write_index();
    save();
    // An old token file must never coexist with the new index.
    if (std::remove(tokens_path_.c_str()) != 0 && errno != ENOENT) cannot_write(tokens_path_, errno);
    // The index first: without it, a .bin would be taken for raw 16-bit tokens.
    move_into_place(index_path_);
  }
  move_into_place(tokens_path_);
}

void TokenWriter::discard() {
  std::remove((tokens_path_ + kUnfinished).c_str());
  if (has_index()) std::remove((index_path_ + kUnfinished).c_str());
}

}  // namespace chimera
