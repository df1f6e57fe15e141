#include "core/content.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/error.h"

namespace chimera {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::size_t kBytesOfText = 100;  // At least, for each zero byte
constexpr std::size_t kBytesBetweenControls = 50;
constexpr std::ptrdiff_t kFewControls = 16;
constexpr std::string_view kControlsOfText = "\b\t\n\v\f\r\x1B";
// The length has eight bytes, little endian, and headers are shorter than 4 GiB, so four zero bytes stand before the
// header.
constexpr std::string_view kSafetensorsLength("\0\0\0\0{\"", 6);  // end of length, header

struct Kind {
  std::string_view bytes;
  const char* name;
  const char* remedy;  ///< FILE stands for the path
};

// Names of files do not help: archives are often named like texts.
const std::array kKinds = {
    Kind{"version https://git-lfs.github.com/spec/", "is a pointer of Git LFS, not the file itself",
         "fetch it: git lfs pull"},
    Kind{"\x1F\x8B\x08", "is a gzip archive", "unpack it: gunzip -k FILE"},
    Kind{"\x93NUMPY", "is an array of NumPy",
         "write its 16-bit tokens: python3 -c 'import numpy; "
         "numpy.load(\"FILE\").astype(\"uint16\").tofile(\"tokens.bin\")'"},
};

// Without this list, a file of raw tokens could be any of them: the bytes of an archive are tokens, too.
/// First bytes of files that get one remedy: archives, tables, documents, images, models, programs.
// clang-format off
constexpr std::string_view kBinary[] = {
  "\xFD\x37zXZ", "BZh91AY&SY", "\x28\xB5\x2F\xFD", "\x04\x22\x4D\x18", "PK\x03\x04", "Rar!\x1A\x07",
  "7z\xBC\xAF\x27\x1C", "PAR1", "ARROW1", "%PDF-", "{\\rtf1", "\x89PNG\r\n",
  "SQLite format 3", "\x89HDF\r\n", "GGUF", "\177ELF"};
// clang-format on

[[noreturn]] void refuse(const std::string& path, std::string_view name, std::string remedy) {
  constexpr std::string_view kFile = "FILE";
  for (auto at = remedy.find(kFile); at != remedy.npos && path != "-"; at = remedy.find(kFile, at + path.size()))
    remedy.replace(at, kFile.size(), path);
  throw ConfigError((path == "-" ? "standard input" : path) + ": " + std::string(name) + "; " + remedy);
}

/// Skips a byte order mark and leading blanks.
std::string_view begin_of_text(std::string_view head) {
  if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
  return head.substr(std::min(head.find_first_not_of(kBlanks), head.size()));
}

/// Ignores case.
bool begins_with_any(std::string_view head, std::initializer_list<std::string_view> beginnings) {
  std::string begin(begin_of_text(head).substr(0, 14));
  std::ranges::transform(begin, begin.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::any_of(beginnings, [&](std::string_view each) { return begin.starts_with(each); });
}

// A failed download leaves the error page of the server under the name of the file.
bool is_web_page(std::string_view head) { return begins_with_any(head, {"<!doctype html", "<html"}); }

// A brace or bracket alone may begin an ordinary text. JSON of documents goes on with a string or an object.
bool is_json(std::string_view begin) {
  const std::string_view inside = begin_of_text(begin.substr(begin.empty() ? 0 : 1));
  return (begin.starts_with('{') && inside.starts_with('"')) ||
         (begin.starts_with('[') && (inside.starts_with('"') || inside.starts_with('{')));
}

bool is_control(char letter) {
  return letter > '\0' && letter < ' ' && kControlsOfText.find(letter) == kControlsOfText.npos;
}

// Texts of other encodings are not recognized in general. Zero bytes and control characters tell binary files, and
// UTF-16 without a mark, from UTF-8; a few of them occur in real texts.
void require_utf8(const std::string& path, std::string_view head) {
  constexpr const char* kMakeUtf8 = "make UTF-8 of it: iconv -f UTF-16 -t UTF-8 FILE";
  if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF")) refuse(path, "is UTF-16", kMakeUtf8);
  const auto is_more_than = [&](auto count, std::size_t bytes_for_each) {
    return static_cast<std::size_t>(count) * bytes_for_each > head.size();
  };
  const auto controls = std::ranges::count_if(head, is_control);
  if (is_more_than(std::ranges::count(head, '\0'), kBytesOfText) ||
      (controls >= kFewControls && is_more_than(controls, kBytesBetweenControls)))
    refuse(path, "is not text: it has many zero bytes or control characters, as UTF-16 and binary files have",
           "give UTF-8 text (iconv -f UTF-16LE -t UTF-8 FILE writes it), or tokens");
}

/// Returns whether the first line of JSON is an object, or too long to tell.
bool has_object_in_line(std::string_view begin) {
  if (begin[0] != '{') return false;
  const auto end = begin.find('\n');
  // JSON over several lines has a line end early. A line as long as this is more often the first of many.
  if (end == begin.npos && begin.size() > kContentHead / 2) return true;
  const std::string_view line = begin.substr(0, end);
  return line[line.find_last_not_of(kBlanks)] == '}';
}

}  // namespace

void require_no_foreign_content(const std::string& path, std::string_view head) {
  for (const Kind& kind : kKinds)
    if (head.starts_with(kind.bytes)) refuse(path, kind.name, kind.remedy);
  if (std::ranges::any_of(kBinary, [&](std::string_view bytes) { return head.starts_with(bytes); }))
    refuse(path, "is an archive, a table or another binary file", "unpack it, or write its text or tokens to a file");
}

void require_downloaded_content(const std::string& path, std::string_view head) {
  require_no_foreign_content(path, head);
  if (is_web_page(head))
    refuse(path, "is a web page, not the file itself",
           "download it from its address with 'resolve' in place of 'blob'");
}

void require_text_content(const std::string& path, std::string_view head, const std::string& lines_remedy) {
  require_no_foreign_content(path, head);
  if (head.substr(std::min<std::size_t>(head.size(), 4)).starts_with(kSafetensorsLength))
    refuse(path, "is a safetensors file", "give the folder of its model, or text or tokens");
  head = head.substr(0, kContentHead);
  require_utf8(path, head);
  const std::string_view begin = begin_of_text(head);
  if (lines_remedy.empty() || path.ends_with(".txt")) return;
  if (is_web_page(begin) || begins_with_any(begin, {"<?xml", "<svg", "<mediawiki"}))
    refuse(path, "is a web page or XML, not text", "write its text to a file; a name with .txt keeps the markup");
  if (!is_json(begin)) return;
  if (has_object_in_line(begin)) refuse(path, "is JSON with an object per line, not text", lines_remedy);
  refuse(path, "is JSON, not text",
         "make a file with an object per line, such as {\"text\": \"...\"}: jq -c '.[]' FILE > FILE.jsonl");
}

}  // namespace chimera
