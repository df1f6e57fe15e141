#include "core/content.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

const std::string kBinary = "an archive, a table or another binary file; unpack it, or write its text or tokens";

/// First bytes and the refusal.
const std::vector<std::pair<std::string, std::string>>& foreign() {
  static const std::vector<std::pair<std::string, std::string>> kFiles = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 7\n", "a pointer of Git LFS"},
      {"\x1F\x8B\x08\x08", "a gzip archive; unpack it: gunzip -k a b"},
      {"\xFD\x37zXZ", kBinary},
      {"BZh91AY&SY", kBinary},
      {"\x28\xB5\x2F\xFD$", kBinary},
      {"\x04\x22\x4D\x18", kBinary},
      {"PK\x03\x04", kBinary},
      {"Rar!\x1A\x07\x01", kBinary},
      {"7z\xBC\xAF\x27\x1C", kBinary},
      {"PAR1\x15", kBinary},
      {"ARROW1", kBinary},
      {"\x93NUMPY\x01", "an array of NumPy; write its 16-bit tokens: python3 -c 'import numpy; numpy.load(\"a b\")"},
      {"%PDF-1.7", kBinary},
      {"{\\rtf1\\ansi", kBinary},
      {"\x89PNG\r\n\x1A\n", kBinary},
      {"SQLite format 3", kBinary},
      {"\x89HDF\r\n\x1A\n", kBinary},
      {"GGUF\x03", kBinary},
      {"\177ELF", kBinary},
  };
  return kFiles;
}

TEST(ContentTest, NamesForeignFilesAndTheRightCommand) {
  for (const auto& [head, name] : foreign()) {
    const auto refusal = ThrowsMessage<ConfigError>(AllOf(StartsWith("a b: is " + name), Not(HasSubstr("\n"))));
    EXPECT_THAT([&head = head] { require_no_foreign_content("a b", head); }, refusal);
    EXPECT_THAT([&head = head] { require_downloaded_content("a b", head); }, refusal);
    EXPECT_THAT([&head = head] { require_text_content("a b", head, "read it"); }, refusal);
  }
  EXPECT_THAT([] { require_no_foreign_content("-", "\x1F\x8B\x08"); },
              ThrowsMessage<ConfigError>(StartsWith("standard input: is a gzip archive; unpack it: gunzip -k FILE")));
}

TEST(ContentTest, AWebPageIsNoDownload) {
  for (const char* head : {"<!DOCTYPE html><html>", "\n\n<!doctype HTML>", "<html class=\"a\">"}) {
    EXPECT_THAT([&] { require_downloaded_content("a", head); },
                ThrowsMessage<ConfigError>(StartsWith("a: is a web page, not the file itself")));
  }
}

TEST(ContentTest, TextIsUtf8WithoutMarkup) {
  const std::vector<std::pair<std::string, std::string>> refusals = {
      {std::string("\xFF\xFEh\0", 4), "UTF-16; make UTF-8 of it: iconv -f UTF-16 -t UTF-8 a"},
      {std::string("\xFE\xFF\0h", 4), "UTF-16; "},
      {std::string("\xFF\xFE\0\0h\0\0\0", 8), "UTF-16; "},
      {std::string("h\0i\0", 4),
       "not text: it has many zero bytes or control characters, as UTF-16 and binary files have; give UTF-8"},
      {std::string("\0h\0i", 4), "not text: it has many zero bytes"},
      {std::string("ab\0\0\0\0cd", 8), "not text: it has many zero bytes"},
      {"<!DOCTYPE html>\n<html>", "a web page or XML, not text; write its text to a file; a name with .txt keeps"},
      {" <HTML lang=\"en\">", "a web page or XML, not text"},
      {"<?xml version=\"1.0\"?>\n<feed>", "a web page or XML, not text; write its"},
      {"<svg xmlns=\"http", "a web page or XML, not text"},
      {"<mediawiki xml:lang=\"en\">", "a web page or XML, not text"},
      {"\xFF\xD8" + std::string(16, '\x01') + std::string(700, 'a'),
       "not text: it has many zero bytes or control characters"},
      {std::string("\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\"", 20), "a safetensors file; give the folder of its model"},
      {"{\"text\": \"a\"}\n{\"text\": \"b\"}\n", "JSON with an object per line, not text; read it"},
      {"\xEF\xBB\xBF {\"text\": \"a\"}", "JSON with an object per line, not text; read it"},
      {"{\"text\": \"" + std::string(2 * kContentHead, 'a'), "JSON with an object per line, not text; read it"},
      {"{\n  \"text\": \"a\"\n}\n", "JSON, not text; make a file with an object per line"},
      {"[\n{\"text\": \"a\"}]", "JSON, not text; make a file with an object per line"},
      {"[\"a\", \"b\"]",
       "JSON, not text; make a file with an object per line, such as {\"text\": \"...\"}: jq -c '.[]' a > a.jsonl"},
  };
  for (const auto& [head, name] : refusals) {
    EXPECT_THAT([&head = head] { require_text_content("a", head, "read it"); },
                ThrowsMessage<ConfigError>(StartsWith("a: is " + name)));
  }
  for (const auto& [head, name] : refusals) {
    if (name.starts_with("JSON") || name.starts_with("a web page")) {
      EXPECT_NO_THROW(require_text_content("a.txt", head, "read it")) << "named as text";
      EXPECT_NO_THROW(require_text_content("a", head, "")) << "welcome";
    }
  }
  EXPECT_NO_THROW(require_text_content("a", std::string(99, 'a') + std::string(1, '\0'), "read it"));
  EXPECT_NO_THROW(require_text_content("a", std::string(15, '\x01') + std::string(16, '\f'), "read it"));
  EXPECT_NO_THROW(require_text_content("a", std::string(16, '\x01') + std::string(800, 'a'), "read it"));
  for (const char* head : {"", " ", "{", "[", "{a}", "[1] A note", "{ \n", "\xFF", "h\xC3\xA9"})
    EXPECT_NO_THROW(require_text_content("a", head, "read it")) << head;
}

}  // namespace
}  // namespace chimera
