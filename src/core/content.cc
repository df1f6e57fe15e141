#include "core/content.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>

#include "core/error.h"

namespace chimera {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::size_t kBytesOfText = 100;  // At least, for each zero byte
constexpr std::size_t kBytesBetweenControls = 50;
constexpr std::ptrdiff_t kFewControls = 16;
constexpr std::string_view kControlsOfText = "\b\t\n\v\f\r\x1B";
constexpr std::string_view kSafetensorsLength("\0\0\0\0{\"", 6);  // end of length, header

struct Kind {
  std::size_t place;
  std::string_view bytes;
  const char* name;
  const char* remedy;  ///< FILE stands for the path
};

constexpr const char* kMakeLines =
    "make JSON lines of it: python3 -c 'import pandas; pandas.read_parquet(\"FILE\").to_json(\"text.jsonl\", "
    "orient=\"records\", lines=True)'";

// Names of files do not help: archives are often named like texts.
const std::array kKinds = {
    Kind{0, "version https://git-lfs.github.com/spec/", "is a pointer of Git LFS, not the file itself",
         "fetch it: git lfs pull"},
    Kind{0, "\x1F\x8B\x08", "is a gzip archive", "unpack it: gunzip -k FILE"},
    Kind{0, "\xFD\x37zXZ", "is an xz archive", "unpack it: unxz -k FILE"},
    Kind{4, "1AY&SY", "is a bzip2 archive", "unpack it: bunzip2 -k FILE"},
    Kind{0, "\x28\xB5\x2F\xFD", "is a zstd archive", "unpack it: unzstd FILE"},
    Kind{0, "\x04\x22\x4D\x18", "is an lz4 archive", "unpack it: unlz4 FILE"},
    Kind{0, "PK\x03\x04", "is a zip archive", "unpack it: unzip FILE"},
    Kind{0, "PK\x05\x06", "is a zip archive without files", "give another file"},
    Kind{0, "Rar!\x1A\x07", "is a rar archive", "unpack it: unrar x FILE"},
    Kind{4, "sNaPpY", "is a snappy archive", "unpack it: snzip -dk FILE"},
    Kind{0, "7z\xBC\xAF\x27\x1C", "is a 7z archive", "unpack it: 7z x FILE"},
    Kind{257, "ustar", "is a tar archive", "unpack it: tar -xf FILE"},
    Kind{0, "PAR1", "is a Parquet table", kMakeLines},
    Kind{0, "ARROW1", "is an Arrow table",
         "make JSON lines of it: python3 -c 'import pandas; pandas.read_feather(\"FILE\").to_json(\"text.jsonl\", "
         "orient=\"records\", lines=True)'"},
    Kind{0, "\x93NUMPY", "is an array of NumPy",
         "write its 16-bit tokens: python3 -c 'import numpy; "
         "numpy.load(\"FILE\").astype(\"uint16\").tofile(\"tokens.bin\")'"},
    Kind{0, "%PDF-", "is a PDF document", "write its text: pdftotext FILE"},
    Kind{0, "{\\rtf1", "is an RTF document", "save it as text"},
    Kind{0, "\x89PNG\r\n", "is an image", "give a text or tokens"},
    Kind{0, "SQLite format 3", "is a database of SQLite", "write its text to a file"},
    Kind{0, "\x89HDF\r\n", "is an HDF5 file", "write its text or tokens to a file"},
    Kind{0, "GGUF", "is a model of llama.cpp", "give the folder of the model with safetensors"},
    Kind{0, "\177ELF", "is a program", "give a text or tokens"},
};

[[noreturn]] void refuse(const std::string& path, std::string_view name, std::string remedy) {
  constexpr std::string_view kFile = "FILE";
  for (auto at = remedy.find(kFile); at != remedy.npos && path != "-"; at = remedy.find(kFile, at + path.size())) {
    remedy.replace(at, kFile.size(), path);
  }
  throw ConfigError((path == "-" ? "standard input" : path) + ": " + std::string(name) + "; " + remedy);
}

/// Skips a byte order mark and leading blanks.
std::string_view begin_of_text(std::string_view head) {
  if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
  return head.substr(std::min(head.find_first_not_of(kBlanks), head.size()));
}

bool is_web_page(std::string_view head) {
  std::string begin(begin_of_text(head).substr(0, 14));
  std::ranges::transform(begin, begin.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return begin == "<!doctype html" || begin.starts_with("<html");
}

std::string_view inside_of(std::string_view begin) { return begin_of_text(begin.substr(begin.empty() ? 0 : 1)); }

bool has_texts(std::string_view begin) { return begin.starts_with('[') && inside_of(begin).starts_with('"'); }

bool is_json(std::string_view begin) {
  return (begin.starts_with('{') && inside_of(begin).starts_with('"')) ||
         (begin.starts_with('[') && inside_of(begin).starts_with('{')) || has_texts(begin);
}

bool is_control(char letter) {
  return letter > '\0' && letter < ' ' && kControlsOfText.find(letter) == kControlsOfText.npos;
}

// Text in UTF-16 or UTF-32 has zero bytes at fixed positions modulo 4, nearly everywhere: 'a' stands for a position
// with other bytes, '0' for one with zeros.
/// Empty for a binary file.
std::string wide_encoding(std::string_view head) {
  std::array<std::size_t, 4> zeros{};
  for (std::size_t i = 0; i < head.size(); ++i) zeros[i % 4] += head[i] == '\0' ? 1 : 0;
  const auto has_zeros = [&](std::string_view places) {
    return std::ranges::all_of(std::array<std::size_t, 4>{0, 1, 2, 3}, [&](std::size_t p) {
      return places[p] == '0' ? zeros[p] > head.size() / kBytesOfText : zeros[p] <= head.size() / (4 * kBytesOfText);
    });
  };
  if (has_zeros("a000")) return "UTF-32LE";
  if (has_zeros("000a")) return "UTF-32BE";
  if (has_zeros("a0a0")) return "UTF-16LE";
  return has_zeros("0a0a") ? "UTF-16BE" : "";
}

[[noreturn]] void refuse_encoding(const std::string& path, const std::string& encoding) {
  refuse(path, "is " + encoding, "make UTF-8 of it: iconv -f " + encoding + " -t UTF-8 FILE");
}

void require_utf8(const std::string& path, std::string_view head) {
  constexpr std::string_view kUtf32Mark("\xFF\xFE\0\0", 4);
  if (head.starts_with(kUtf32Mark)) refuse_encoding(path, "UTF-32");
  if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF")) refuse_encoding(path, "UTF-16");
  if (head.size() > 1 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5) {
    refuse(path, "is a pickle", "write its text to a file");
  }
  const auto is_more_than = [&](auto count, std::size_t bytes_for_each) {
    return static_cast<std::size_t>(count) * bytes_for_each > head.size();
  };
  if (is_more_than(std::ranges::count(head, '\0'), kBytesOfText)) {
    const std::string encoding = wide_encoding(head);
    if (!encoding.empty()) refuse_encoding(path, encoding);
    refuse(path, "is not text: it has many zero bytes, as binary files have", "give UTF-8 text, or tokens");
  }
  const auto controls = std::ranges::count_if(head, is_control);
  if (controls >= kFewControls && is_more_than(controls, kBytesBetweenControls)) {
    refuse(path, "is not text: it has many control characters, as binary files have", "give UTF-8 text, or tokens");
  }
}

/// Returns whether the first line of JSON is an object, or too long to tell.
bool has_object_in_line(std::string_view begin) {
  if (begin[0] != '{') return false;
  const auto end = begin.find('\n');
  if (end == begin.npos && begin.size() > kContentHead / 2) return true;
  const std::string_view line = begin.substr(0, end);
  return line[line.find_last_not_of(kBlanks)] == '}';
}

}  // namespace

void require_no_foreign_content(const std::string& path, std::string_view head) {
  for (const Kind& kind : kKinds) {
    if (head.size() > kind.place && head.substr(kind.place).starts_with(kind.bytes)) {
      refuse(path, kind.name, kind.remedy);
    }
  }
}

void require_downloaded_content(const std::string& path, std::string_view head) {
  require_no_foreign_content(path, head);
  if (is_web_page(head)) {
    refuse(path, "is a web page, not the file itself",
           "download it from its address with 'resolve' in place of 'blob'");
  }
}

void require_text_content(const std::string& path, std::string_view head, const std::string& lines_remedy) {
  require_no_foreign_content(path, head);
  if (head.substr(std::min<std::size_t>(head.size(), 4)).starts_with(kSafetensorsLength)) {
    refuse(path, "is a safetensors file", "give the folder of its model, or text or tokens");
  }
  head = head.substr(0, kContentHead);
  require_utf8(path, head);
  const std::string_view begin = begin_of_text(head);
  if (lines_remedy.empty() || path.ends_with(".txt") || !is_json(begin)) return;
  if (has_object_in_line(begin)) refuse(path, "is JSON with an object per line, not text", lines_remedy);
  refuse(path, "is JSON, not text",
         "make a file with an object per line: jq -c '.[]" + std::string(has_texts(begin) ? " | {text: .}" : "") +
             "' FILE > FILE.jsonl");
}

}  // namespace chimera
