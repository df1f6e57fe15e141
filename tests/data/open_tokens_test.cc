#include "data/open_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "megatron.h"
#include "support/paths.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Scratch;

/// Written by tools/make_token_fixtures.py.
std::string fixture(const std::string& name) { return testing::source_path("/tests/data/fixtures/") + name; }

using Tokens = std::vector<std::int64_t>;
const Tokens kEndingDocuments = {5, 6, 7, 99, 11, 12, 13, 99, 21, 99};
const Tokens kBeginningDocuments = {99, 5, 6, 7, 99, 11, 12, 13, 99, 21};

std::shared_ptr<const TokenStream> open(const std::string& path, const TokenOptions& options = {}) {
  return open_tokens(path, options).training;
}

Tokens all_of(const std::shared_ptr<const TokenStream>& stream) {
  Tokens tokens(static_cast<std::size_t>(stream->size()));
  stream->read(0, tokens);
  return tokens;
}

void expect_tokens_refused(const std::string& path, const std::string& message, const TokenOptions& options = {}) {
  EXPECT_THAT([&] { static_cast<void>(open_tokens(path, options)); },
              ::testing::ThrowsMessage<ConfigError>(AllOf(HasSubstr(message), Not(HasSubstr("\n")))));
}

TEST(OpenTokensTest, ReadsMegatronsTokensOfEveryWidth) {
  for (const std::string type : {"uint8", "int8", "int16", "int32", "int64", "uint16"}) {
    const FoundTokens found = open_tokens(fixture(type + ".bin"), {});
    EXPECT_EQ(found.format, "Megatron tokens");
    EXPECT_EQ(all_of(found.training), kEndingDocuments) << type;
    EXPECT_THAT(found.training->document_starts(0, 10), ElementsAre(4, 8)) << type;
  }
}

/// Files written by numpy equal the bytes of the types in token_format.h.
TEST(OpenTokensTest, HeadersLieInMemoryAsInFiles) {
  MegatronFiles files{.header = {.type_code = kMegatronTypes.size() - 1, .sequences = 4, .documents = 4},
                      .lengths = {4, 2, 2, 2},
                      .pointers = {0, 8, 12, 16},
                      .documents = {0, 1, 3, 4}};
  EXPECT_EQ(files.index(), testing::read_file(fixture("uint16.idx")));
  EXPECT_EQ(bytes_of(LlmcHeader{.tokens = 10}), testing::read_file(fixture("llmc_gpt2.bin")).substr(0, 1024));
  const LlmcHeader llama{.magic = kLlmcLlama3Magic, .version = kLlmcLlama3Version, .tokens = 10};
  EXPECT_EQ(bytes_of(llama), testing::read_file(fixture("llmc_llama3.bin")).substr(0, 1024));
}

TEST(OpenTokensTest, FindsMegatronsFilesByEitherNameOrTheirPrefix) {
  for (const std::string name : {"uint16", "uint16.bin", "uint16.idx"})
    EXPECT_EQ(all_of(open(fixture(name))), kEndingDocuments) << name;
}

TEST(OpenTokensTest, ReadsLlmcsTokens) {
  for (const std::string name : {"llmc_gpt2.bin", "llmc_llama3.bin"}) {
    const FoundTokens found = open_tokens(fixture(name), {.end_of_document = 99});
    EXPECT_EQ(found.format, "llm.c tokens");
    EXPECT_EQ(all_of(found.training), kBeginningDocuments) << name;
    EXPECT_THAT(found.training->document_starts(0, 10), ElementsAre(4, 8)) << name;
  }
}

TEST(OpenTokensTest, DetectsTheStartMarkOfLlmcsDocuments) {
  EXPECT_EQ(open(fixture("llmc_gpt2.bin"))->files().front().layout().mark->id, 50256);
  EXPECT_EQ(open(fixture("llmc_llama3.bin"))->files().front().layout().mark->id, 128000);
}

TEST(OpenTokensTest, TreatsOtherBinFilesAsRawTokensAndSaysSo) {
  const FoundTokens found = open_tokens(fixture("raw.bin"), {.end_of_document = 99});
  EXPECT_EQ(found.format, "raw 16-bit tokens");
  EXPECT_EQ(all_of(found.training), kEndingDocuments);
  EXPECT_THAT(found.training->document_starts(0, 10), ElementsAre(4, 8));
  EXPECT_THAT(open(fixture("raw.bin"))->document_starts(0, 10), ElementsAre()) << "nothing says where documents end";
}

TEST(OpenTokensTest, DocumentsAreNumberedFromTheStartOfTheRange) {
  for (const std::string name : {"uint16.bin", "raw.bin", "llmc_gpt2.bin"}) {
    const auto stream = open(fixture(name), {.end_of_document = 99});
    EXPECT_THAT(stream->document_starts(3, 6), ElementsAre(1, 5)) << name;
    EXPECT_THAT(stream->document_starts(4, 4), ElementsAre()) << name << ": the first token's document is not news";
    EXPECT_THAT(stream->document_starts(5, 3), ElementsAre()) << name;
    EXPECT_THAT(stream->document_starts(7, 2), ElementsAre(1)) << name;
  }
}

TEST(OpenTokensTest, TheBytesOfATextAreItsTokens) {
  const Scratch scratch;
  const FoundTokens found = open_tokens(scratch.write("a.txt", "h\xC3\xA9!"), {});
  EXPECT_EQ(found.format, "text");
  EXPECT_THAT(all_of(found.training), ElementsAre('h', 0xC3, 0xA9, '!'));
}

TEST(OpenTokensTest, ATokenizerMakesTheTokensOfAText) {
  const Scratch scratch;
  const TokenOptions options{.encode = [](const DataFile& text) {
    return std::vector<std::int32_t>{static_cast<std::int32_t>(text.size()), 70'000};
  }};
  EXPECT_THAT(all_of(open(scratch.write("a.txt", "abc"), options)), ElementsAre(3, 70'000));
  EXPECT_EQ(all_of(open(fixture("raw.bin"), options)), kEndingDocuments) << "tokens are tokens already";
}

TEST(OpenTokensTest, ATextWithoutTokensIsRefused) {
  const Scratch scratch;
  expect_tokens_refused(scratch.write("a.txt", " "), "a.txt: has no tokens under this tokenizer",
                        {.encode = [](const DataFile&) { return std::vector<std::int32_t>{}; }});
}

class FolderTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string folder() const { return scratch_.path("shards"); }
  void add(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(folder());
    static_cast<void>(scratch_.write("shards/" + name, content));
  }
  Scratch scratch_;
};

TEST_F(FolderTest, ShardsFollowEachOtherByName) {
  add("b.txt", "45");
  add("a.txt", "123");
  add("README.md", "not read");
  const FoundTokens found = open_tokens(folder(), {});
  EXPECT_EQ(found.format, "text in a folder of 2");
  EXPECT_EQ(found.validation, nullptr);
  EXPECT_THAT(all_of(found.training), ElementsAre('1', '2', '3', '4', '5'));
  EXPECT_THAT(found.training->document_starts(0, 5), ElementsAre(3)) << "a text is a document";
}

TEST_F(FolderTest, HiddenFilesAreNotRead) {
  add("a.txt", "123");
  add("._a.txt", "macOS keeps attributes here");
  add(".txt", "hidden");
  const FoundTokens found = open_tokens(folder(), {});
  EXPECT_THAT(all_of(found.training), ElementsAre('1', '2', '3'));
  EXPECT_EQ(found.ignored_files_note, "");
}

TEST_F(FolderTest, SaysWhatItPassesOver) {
  add("a.txt", "123");
  add("b.jsonl", "{}");
  EXPECT_EQ(open_tokens(folder(), {}).ignored_files_note,
            folder() + ": passed over b.jsonl; only names that end in .txt are read");
  for (const char* name : {"c.TXT", "d.md", "e.gz"}) add(name, "?");
  EXPECT_EQ(open_tokens(folder(), {}).ignored_files_note,
            folder() + ": passed over b.jsonl, c.TXT, d.md and 1 more; only names that end in .txt are read");
}

TEST_F(FolderTest, FollowsLinks) {
  add("a.txt", "12");
  static_cast<void>(scratch_.write("elsewhere", "34"));
  std::filesystem::create_symlink(scratch_.path("elsewhere"), folder() + "/b.txt");
  EXPECT_THAT(all_of(open(folder())), ElementsAre('1', '2', '3', '4'));
  std::filesystem::create_symlink(scratch_.path("absent"), folder() + "/c.txt");
  expect_tokens_refused(folder(), "c.txt: No such file or directory");
}

/// GPT-2's mark is in no smaller vocabulary.
TEST_F(FolderTest, SeparatesDocumentsOnlyWithAKnownMark) {
  const auto separates = [](const std::string& path, const TokenOptions& options) {
    return open(path, options)->separates_documents();
  };
  EXPECT_TRUE(separates(fixture("uint16.bin"), {}));
  EXPECT_FALSE(separates(fixture("raw.bin"), {}));
  EXPECT_TRUE(separates(fixture("raw.bin"), {.end_of_document = 99}));
  EXPECT_FALSE(separates(fixture("raw.bin"), {.vocabulary = 99, .end_of_document = 99}));
  const std::string shard = scratch_.write("l.bin", bytes_of(LlmcHeader{.tokens = 2}) + std::string(4, '\0'));
  EXPECT_TRUE(separates(shard, {}));
  EXPECT_FALSE(separates(shard, {.vocabulary = 300}));
  add("a.txt", "12");
  EXPECT_FALSE(separates(folder(), {}));
  add("b.txt", "34");
  EXPECT_TRUE(separates(folder(), {}));
}

TEST_F(FolderTest, KeepsShardsForValidationApart) {
  add("train.txt", "train");
  add("fineweb_val_000000.txt", "v");
  add("interval.txt", "!");
  const FoundTokens found = open_tokens(folder(), {});
  EXPECT_THAT(all_of(found.training), ElementsAre('!', 't', 'r', 'a', 'i', 'n'));
  EXPECT_THAT(all_of(found.validation), ElementsAre('v'));
}

TEST_F(FolderTest, ShardsMayDifferInFormatAndWidth) {
  for (const char* name : {"uint8.bin", "uint8.idx", "int32.bin", "int32.idx"})
    add(name, testing::read_file(fixture(name)));
  add("raw.bin", testing::read_file(fixture("raw.bin")));
  const auto stream = open(folder(), {.end_of_document = 99});
  EXPECT_EQ(stream->size(), 30);
  EXPECT_THAT(stream->document_starts(0, 30), ElementsAre(4, 8, 10, 14, 18, 20, 24, 28));
}

/// Programs that write end-of-document marks may split documents across shards.
TEST_F(FolderTest, DocumentsContinueInTheNextShardUnlessMarked) {
  add("1.bin", std::string("\x05\x00\x06\x00", 4));
  add("2.bin", std::string("\x07\x00\x63\x00", 4));
  add("3.bin", std::string("\x08\x00\x09\x00", 4));
  EXPECT_THAT(open(folder(), {.end_of_document = 99})->document_starts(0, 6), ElementsAre(4));
}

TEST_F(FolderTest, RejectsInvalidShards) {
  std::filesystem::create_directories(folder());
  expect_tokens_refused(folder(), "has neither .bin nor .txt files; expected shards of tokens or text");
  add("val.txt", "v");
  add("a.bin", "ab");
  expect_tokens_refused(folder(), "has .bin and .txt files; expected shards of one kind");
  add("b.idx", "MMIDIDX");
  expect_tokens_refused(folder(), "b.idx: the file of its tokens, " + folder() + "/b.bin, does not exist");
}

TEST_F(FolderTest, RefusesAnEmptyShard) {
  add("1.bin", "ab");
  add("2.bin", "");
  expect_tokens_refused(folder(), "2.bin: it is empty");
}

TEST(OpenTokensRefusalTest, NamesWhatIsWrongWithLlmcsHeader) {
  const Scratch scratch;
  const auto write = [&](const LlmcHeader& header, const std::string& rest) {
    return scratch.write("a.bin", bytes_of(header) + rest);
  };
  const std::string four(4, '\0');
  EXPECT_EQ(open(write({.tokens = 2}, four))->size(), 2);
  expect_tokens_refused(write({.version = 2, .tokens = 2}, four), "a.bin: is version 2 of llm.c's tokens; expected 1");
  expect_tokens_refused(write({.magic = kLlmcLlama3Magic, .tokens = 1}, four),
                        "is version 1 of llm.c's tokens; expected 7");
  for (const std::int32_t tokens : {-1, 0, 1, 3, INT32_MAX}) {
    expect_tokens_refused(
        write({.tokens = tokens}, four),
        "counts " + std::to_string(tokens) + " tokens of 2 bytes in its header, but 4 bytes follow the header");
  }
  expect_tokens_refused(write({.magic = 20240326}, four), "holds a model of llm.c; expected tokens");
  expect_tokens_refused(scratch.write("a.bin", bytes_of(kLlmcGpt2Magic) + four),
                        "has 8 bytes; the header of llm.c's tokens");
}

TEST(OpenTokensRefusalTest, RawTokensHaveTwoBytes) {
  const Scratch scratch;
  expect_tokens_refused(scratch.write("a.bin", "abc"),
                        "a.bin: has 3 bytes, so it cannot hold 16-bit tokens; expected an even");
}

TEST(OpenTokensRefusalTest, ContentOfAnotherKindIsNamed) {
  const Scratch scratch;
  expect_tokens_refused(scratch.write("a.txt.gz", "\x1F\x8B\x08\x08"),
                        "a.txt.gz: is a gzip archive; unpack it: gunzip -k ");
  expect_tokens_refused(scratch.write("a.bin", "\x93NUMPY\x01\x02"),
                        "a.bin: is an array of NumPy; write its 16-bit tokens");
  expect_tokens_refused(scratch.write("a.txt", std::string("\xFF\xFEh\0", 4)), "a.txt: is UTF-16; make UTF-8 of it");
  expect_tokens_refused(scratch.write("report.html", "<!doctype html>\n"),
                        "report.html: is a web page or XML, not text");
  expect_tokens_refused(scratch.write("b.bin", "PK\x03\x04"), "b.bin: is an archive, a table or another binary file");
  const std::string lines = scratch.write("a.jsonl", "{\"text\": \"a\"}\n");
  expect_tokens_refused(lines, "JSON with an object per line, not text; make tokens of it: chimera tokenize " + lines +
                                   " --field text --tokenizer TOKENIZER --output PREFIX");
}

TEST(OpenTokensRefusalTest, RawTokensOf32BitsAreNotReadAs16) {
  const Scratch scratch;
  std::vector<std::uint32_t> tokens(100);
  std::iota(tokens.begin(), tokens.end(), 70'000);
  const auto write = [&](const auto& numbers) {
    const auto bytes = std::as_bytes(std::span(numbers));
    return scratch.write("a.bin", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  const std::string wide = "a.bin: looks like tokens of 32 or 64 bits; raw tokens have 16: ";
  expect_tokens_refused(write(tokens), wide + "write them as 16 bits, or make files for a larger vocabulary");
  expect_tokens_refused(write(std::vector<std::int64_t>(tokens.begin(), tokens.end())), wide);
  tokens.resize(4);
  EXPECT_EQ(open(write(tokens))->size(), 8) << "too few to tell";
  EXPECT_EQ(open(write(std::vector<std::uint16_t>(100, 0)))->size(), 100) << "all tokens are equal";
  std::vector<std::uint16_t> short_tokens(100);
  std::iota(short_tokens.begin(), short_tokens.end(), 0);
  EXPECT_EQ(open(write(short_tokens))->size(), 100);
}

TEST(OpenTokensRefusalTest, AnIndexNeedsItsTokensAndItsName) {
  const Scratch scratch;
  const std::string index = MegatronFiles().index();
  expect_tokens_refused(scratch.write("a.idx", index),
                        "the file of its tokens, " + scratch.path("a.bin") + ", does not exist");
  expect_tokens_refused(scratch.write("renamed", index), "renamed: is a Megatron index; its name must end in .idx");
}

}  // namespace
}  // namespace chimera
