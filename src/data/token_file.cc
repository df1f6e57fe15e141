#include "data/token_file.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/reject.h"

namespace chimera {
namespace {

constexpr auto kHeaderBytes = static_cast<std::int64_t>(sizeof(MegatronIndexHeader));
constexpr std::int64_t kLengthBytes = sizeof(std::int32_t);
constexpr std::int64_t kPointerBytes = sizeof(std::int64_t);
constexpr std::int64_t kDocumentBytes = sizeof(std::int64_t);

template <class... Values>
[[noreturn]] void refuse_index(const DataFile& file, fmt::format_string<Values...> message, Values&&... values) {
  reject("{}: {}", file.path(), fmt::format(message, std::forward<Values>(values)...));
}

template <class Entry>
/// Reads a list of the index in blocks: an index may have billions of entries, and check_sequences() reads two lists
/// side by side.
class Entries {
 public:
  Entries(const DataFile& file, std::int64_t offset, std::int64_t count) : file_(file), offset_(offset), left_(count) {}

  Entry next() {
    if (at_ == block_.size()) fill();
    return block_[at_++];
  }

 private:
  void fill() {
    constexpr std::int64_t kBlock = 1 << 16;
    block_.resize(static_cast<std::size_t>(std::min(left_, kBlock)));
    const auto bytes = std::as_writable_bytes(std::span(block_));
    file_.read(offset_, bytes);
    offset_ += static_cast<std::int64_t>(bytes.size());
    left_ -= static_cast<std::int64_t>(block_.size());
    at_ = 0;
  }

  const DataFile& file_;
  std::int64_t offset_;
  std::int64_t left_;
  std::vector<Entry> block_;
  std::size_t at_ = 0;
};

}  // namespace

MegatronIndex::MegatronIndex(DataFile file, std::int64_t token_bytes)
    : file_(std::move(file)), token_bytes_(token_bytes) {
  check_header();
  check_sequences();
  check_documents();
}

void MegatronIndex::check_header() {
  if (file_.size() < kHeaderBytes)
    refuse_index(file_, "has {} bytes; the header of an index takes {}", file_.size(), kHeaderBytes);
  const auto header = file_.number_at<MegatronIndexHeader>(0);
  if (header.magic != kMegatronMagic) refuse_index(file_, "does not begin with MMIDIDX, as a Megatron index does");
  if (const std::uint64_t version = header.version; version != kMegatronVersion)
    refuse_index(file_, "is of version {}; expected {}", version, kMegatronVersion);
  const auto type = megatron_type(header.type_code);
  if (!type)
    refuse_index(file_, "gives its tokens the type {}; expected 1 to 5 or 8, which are whole numbers",
                 unsigned{header.type_code});
  type_ = *type;
  // Larger counts are rejected first, so that the product cannot overflow.
  const std::uint64_t sequences = header.sequences;
  const std::uint64_t documents = header.documents;
  const auto most = static_cast<std::uint64_t>(file_.size());
  // Each entry has at least one byte.
  const bool fits = sequences <= most && documents <= most;
  const std::uint64_t expected =
      fits ? kHeaderBytes + sequences * (kLengthBytes + kPointerBytes) + documents * kDocumentBytes : 0;
  // One byte more for each sequence is what Megatron writes for multimodal data.
  if (fits && sequences > 0 && most == expected + sequences)
    refuse_index(file_, "has a mode for each sequence, as multimodal data have; expected only text");
  if (most != expected)
    refuse_index(file_, "has {} bytes, which does not match {} sequences and {} document entries", most, sequences,
                 documents);
  if (sequences == 0 || documents < 2) refuse_index(file_, "has no documents; expected one at least");
  sequences_ = static_cast<std::int64_t>(sequences);
  // The list ends with the number of sequences.
  documents_ = static_cast<std::int64_t>(documents) - 1;
}

void MegatronIndex::check_sequences() const {
  const std::int64_t width = width_of(type_);
  Entries<std::int32_t> lengths(file_, lengths_at(), sequences_);
  Entries<std::int64_t> pointers(file_, pointers_at(), sequences_);
  std::int64_t end = 0;  // of the previous sequence in the .bin, in bytes
  for (std::int64_t i = 0; i < sequences_; ++i) {
    const std::int64_t length = lengths.next();
    const std::int64_t pointer = pointers.next();
    if (length < 1) refuse_index(file_, "sequence {} has {} tokens; expected at least 1", i, length);
    if (pointer != end)
      refuse_index(file_, "sequence {} begins at byte {} of the tokens; expected byte {}", i, pointer, end);
    // A division, because the product could overflow.
    if (length > (token_bytes_ - end) / width)
      refuse_index(file_, "sequence {} has {} tokens from byte {} on, but the tokens end at byte {}", i, length, end,
                   token_bytes_);
    end += length * width;
  }
  if (end != token_bytes_)
    refuse_index(file_, "its sequences end at byte {} of the tokens, which have {} bytes", end, token_bytes_);
}

void MegatronIndex::check_documents() const {
  Entries<std::int64_t> starts(file_, documents_at(), documents_ + 1);
  std::int64_t last = starts.next();
  if (last != 0) refuse_index(file_, "document 0 begins with sequence {}; expected sequence 0", last);
  for (std::int64_t i = 1; i <= documents_; ++i) {
    const std::int64_t start = starts.next();
    if (start <= last || start > sequences_)
      refuse_index(file_, "document {} has the sequences from {} to before {}; expected at least one of {}", i - 1,
                   last, start, sequences_);
    last = start;
  }
  if (last != sequences_)
    refuse_index(file_, "its documents end with sequence {}; expected the last of {}", last - 1, sequences_);
}

std::int64_t MegatronIndex::document_start(std::int64_t document) const {
  const auto changed = [&]() -> Error { return Error(file_.path() + " has changed since the run began"); };
  const auto sequence = file_.number_at<std::int64_t>(documents_at() + document * kDocumentBytes);
  // The constructor has checked the whole index, so a wrong number now means that the file was written to.
  if (sequence < 0 || sequence > sequences_) throw changed();
  if (sequence == sequences_) return token_bytes_ / width_of(type_);
  const auto pointer = file_.number_at<std::int64_t>(pointers_at() + sequence * kPointerBytes);
  if (pointer < 0 || pointer > token_bytes_) throw changed();
  return pointer / width_of(type_);
}

std::int64_t MegatronIndex::document_of(std::int64_t position) const {
  // Binary search in the file: the list of starts may not fit into memory.
  std::int64_t first = 0;  // starts at or before the position
  std::int64_t end = documents_;
  while (end - first > 1) {
    const std::int64_t middle = first + (end - first) / 2;
    (document_start(middle) <= position ? first : end) = middle;
  }
  return first;
}

TokenFile::TokenFile(DataFile file, TokenLayout layout, std::int64_t vocabulary)
    : file_(std::move(file)), layout_(std::move(layout)), vocabulary_(vocabulary) {}

void TokenFile::read(std::int64_t first, std::span<std::int64_t> tokens) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (first < 0 || first > size() || count > size() - first)
    throw std::out_of_range(fmt::format("{}: {} tokens from {} on, of {}", file_.path(), tokens.size(), first, size()));
  const std::int64_t offset = layout_.offset + first * width_of(layout_.type);
  with_stored_type(layout_.type, [&]<class Stored>(Stored) {
    // Read in the type of the file, then widened.
    std::vector<Stored> stored(tokens.size());
    file_.read(offset, std::as_writable_bytes(std::span(stored)));
    std::copy(stored.begin(), stored.end(), tokens.begin());
  });
  const auto wrong = std::find_if(tokens.begin(), tokens.end(),
                                  [this](std::int64_t token) { return token < 0 || token >= vocabulary_; });
  if (wrong == tokens.end()) return;
  reject("{}: token {} is {}; the model has the ids 0 to {}; give a new model --vocabulary", file_.path(),
         first + (wrong - tokens.begin()), *wrong, vocabulary_ - 1);
}

void TokenFile::add_document_starts(std::int64_t first, std::int64_t count, std::vector<std::int64_t>& starts) const {
  if (count < 2) return;
  if (layout_.index) {
    const MegatronIndex& index = *layout_.index;
    // The document of `first` began at or before it; only later ones start in the range.
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
