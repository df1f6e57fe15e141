// Text files to token files, checked with the readers of token files.

#include "data/tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/message_of.h"
#include "support/scratch.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer_folder.h"

namespace chimera::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Options, inputs and outputs in a scratch folder.
class TokenizeTest : public ::testing::Test {
 protected:
  TokenizeTest() {
    for (int i = 0; i < 400; ++i)
      text_ += "In the beginning " + std::to_string(i * 7919) + " God created; the heaven.\n";
    WordCounts words;
    words.add(text_);
    scratch_.write("tokenizer.json", to_tokenizer_json(train_bpe(words, {.vocabulary = 400})));
    options_.tokenizer = scratch_.path("tokenizer.json");
    options_.output = scratch_.path("out");
    options_.inputs.field = "text";
    options_.block_bytes = 1000;
    options_.overwrite = true;
  }

  TokenizeProgress run() {
    return tokenize(options_, [](const TokenizeProgress&) {});
  }
  /// Like run, with ids printed.
  std::string printed() {
    std::string all;
    TokenizeOptions options = options_;
    options.output = "-";
    options.print = [&all](const std::string& text) { all += text; };
    tokenize(options, [](const TokenizeProgress&) {});
    return all;
  }
  /// Starts a run that fails when it reports the block after `blocks`.
  void break_after(int blocks) {
    const auto report = [&blocks](const TokenizeProgress&) {
      if (blocks-- == 0) throw std::runtime_error("broken");
    };
    EXPECT_THROW(tokenize(options_, report), std::runtime_error);
  }
  std::string refusal() {
    return message_of([&] { run(); }, "not refused");
  }
  [[nodiscard]] bool exists(const std::string& name) const { return std::filesystem::exists(scratch_.path(name)); }

  Scratch scratch_;
  std::string text_;
  TokenizeOptions options_;
};

template <class Number>
std::vector<Number> numbers_at(const std::string& bytes, std::size_t offset, std::size_t count) {
  std::vector<Number> numbers(count);
  EXPECT_LE(offset + count * sizeof(Number), bytes.size());
  std::memcpy(numbers.data(), bytes.data() + offset, count * sizeof(Number));
  return numbers;
}

/// The ids of each text, one line per text.
std::string lines_of_ids(const std::string& tokenizer, const std::vector<std::string>& texts) {
  const auto opened = open_tokenizer(tokenizer);
  std::string lines;
  for (const std::string& text : texts) {
    std::string line;
    for (const TokenId id : encode(*opened, text)) line += (line.empty() ? "" : " ") + std::to_string(id);
    lines += line + "\n";
  }
  return lines;
}

TEST_F(TokenizeTest, DocumentsKeepTheirOrderForAnyWorkersAndBlocks) {
  std::string lines;
  std::vector<std::string> texts = {text_};
  for (int i = 0; i < 300; ++i) {
    texts.push_back("line " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 37), 'x'));
    lines += R"({"id": 1, "text": ")" + texts.back() + "\"}\n";
  }
  texts.push_back("the last");
  options_.inputs.paths = {scratch_.write("a.txt", text_), scratch_.write("b.jsonl", lines),
                           scratch_.write("c.txt", "the last")};
  const std::string expected = lines_of_ids(options_.tokenizer, texts);
  for (const int workers : {1, 2, 5}) {
    for (const std::size_t block : {50U, 1000U, 1000000U}) {
      options_.workers = workers;
      options_.block_bytes = block;
      EXPECT_EQ(printed(), expected) << workers << " workers, blocks of " << block;
    }
  }
}

TEST_F(TokenizeTest, MegatronHasAnIndexOfTheDocuments) {
  options_.inputs.paths = {scratch_.write("a.txt", "the heaven"), scratch_.write("b.txt", "God")};
  const TokenizeProgress report = run();
  const auto tokenizer = open_tokenizer(options_.tokenizer);
  const auto first = static_cast<std::int32_t>(encode(*tokenizer, "the heaven").size()) + 1;
  const auto second = static_cast<std::int32_t>(encode(*tokenizer, "God").size()) + 1;
  const std::string index = read_file(scratch_.path("out.idx"));
  const std::string tokens = read_file(scratch_.path("out.bin"));
  EXPECT_EQ(report.tokens, first + second);
  EXPECT_EQ(report.documents, 2);
  EXPECT_EQ(index.substr(0, 9), std::string("MMIDIDX\0\0", 9));
  EXPECT_THAT(numbers_at<std::uint64_t>(index, 9, 1), ElementsAre(1U));
  EXPECT_EQ(index[17], 8);  // 16 bits unsigned
  EXPECT_THAT(numbers_at<std::uint64_t>(index, 18, 2), ElementsAre(2U, 3U));
  EXPECT_THAT(numbers_at<std::int32_t>(index, 34, 2), ElementsAre(first, second));
  EXPECT_THAT(numbers_at<std::int64_t>(index, 42, 2), ElementsAre(0, 2 * first));
  EXPECT_THAT(numbers_at<std::int64_t>(index, 58, 3), ElementsAre(0, 1, 2));
  EXPECT_EQ(index.size(), 82U);
  TokenIds expected = encode(*tokenizer, "the heaven");
  expected.push_back(0);
  for (const TokenId id : encode(*tokenizer, "God")) expected.push_back(id);
  expected.push_back(0);
  const auto found = numbers_at<std::uint16_t>(tokens, 0, tokens.size() / 2);
  EXPECT_EQ(TokenIds(found.begin(), found.end()), expected);
}

TEST_F(TokenizeTest, LlmcBeginsDocumentsWithTheEndOfTextAndCountsTokens) {
  options_.inputs.paths = {scratch_.write("a.txt", "the"), scratch_.write("b.txt", "God")};
  options_.format = TokenFileFormat::Llmc;
  const TokenizeProgress report = run();
  const std::string file = read_file(scratch_.path("out.bin"));
  EXPECT_THAT(numbers_at<std::int32_t>(file, 0, 4),
              ElementsAre(20240520, 1, static_cast<std::int32_t>(report.tokens), 0));
  ASSERT_EQ(file.size(), 1024 + 2 * static_cast<std::size_t>(report.tokens));
  EXPECT_EQ(numbers_at<std::uint16_t>(file, 1024, 1).front(), 0);
  EXPECT_NE(numbers_at<std::uint16_t>(file, file.size() - 2, 1).front(), 0);
  EXPECT_FALSE(exists("out.idx"));
}

TEST_F(TokenizeTest, RawHasOnlyTokens) {
  options_.inputs.paths = {scratch_.write("a.txt", "the heaven")};
  options_.format = TokenFileFormat::Raw;
  options_.end_of_document = "none";
  run();
  const std::string file = read_file(scratch_.path("out.bin"));
  const auto found = numbers_at<std::uint16_t>(file, 0, file.size() / 2);
  EXPECT_EQ(TokenIds(found.begin(), found.end()), encode(*open_tokenizer(options_.tokenizer), "the heaven"));
}

TEST_F(TokenizeTest, InterruptedRunResumes) {
  const std::string lines = R"({"text": "God"})"
                            "\n"
                            R"({"text": "the heaven"})"
                            "\n";
  options_.inputs.paths = {scratch_.write("a.txt", text_), scratch_.write("b.jsonl", lines)};
  run();
  const std::string tokens = read_file(scratch_.path("out.bin"));
  const std::string index = read_file(scratch_.path("out.idx"));
  for (const int blocks : {0, 3, 12, 18}) {
    options_.output = scratch_.path("again" + std::to_string(blocks));
    options_.save_every = 1500;
    break_after(blocks);
    EXPECT_FALSE(std::filesystem::exists(options_.output + ".bin"));
    const TokenizeProgress report = run();
    EXPECT_EQ(report.resumed > 0, blocks > 0) << blocks;
    EXPECT_EQ(read_file(options_.output + ".bin"), tokens) << blocks;
    EXPECT_EQ(read_file(options_.output + ".idx"), index) << blocks;
    for (const char* rest : {".resume", ".bin.unfinished", ".idx.unfinished"})
      EXPECT_FALSE(std::filesystem::exists(options_.output + rest)) << rest;
  }
}

/// Another run that wrote to the same place invalidates the progress of a broken run.
TEST_F(TokenizeTest, InterveningRunInvalidatesAnInterruptedRun) {
  options_.inputs.paths = {scratch_.write("a.txt", text_)};
  options_.format = TokenFileFormat::Raw;
  run();
  const std::string whole = read_file(scratch_.path("out.bin"));
  options_.save_every = 1000;
  break_after(8);
  TokenizeOptions first = options_;
  options_.inputs.paths = {scratch_.write("b.txt", "other words " + text_)};
  break_after(3);
  options_ = first;
  EXPECT_EQ(run().resumed, 0);
  EXPECT_EQ(read_file(scratch_.path("out.bin")), whole);
}

TEST_F(TokenizeTest, ARunThatCannotBeContinuedStartsOver) {
  const std::string input = scratch_.write("a.txt", text_);
  options_.inputs.paths = {input};
  options_.save_every = 1000;
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"the input is longer", [&] { scratch_.write("a.txt", text_ + "more"); }},
      {"the input has another letter and its old time",
       [&] {
         const auto time = std::filesystem::last_write_time(input);
         scratch_.write("a.txt", "i" + text_.substr(1));
         std::filesystem::last_write_time(input, time);
       }},
      {"the output is gone", [&] { std::filesystem::resize_file(scratch_.path("out.bin.unfinished"), 1); }},
      {"invalid text, which decides what the files hold, is treated in another way",
       [&] { options_.invalid = InvalidText::Replace; }},
  };
  for (const auto& [what, change] : changes) {
    SCOPED_TRACE(what);
    scratch_.write("a.txt", text_);
    std::filesystem::remove(scratch_.path("out.bin"));
    break_after(5);
    EXPECT_TRUE(exists("out.resume"));
    change();
    EXPECT_EQ(run().resumed, 0);
    EXPECT_FALSE(exists("out.resume"));
    EXPECT_TRUE(exists("out.bin"));
  }
}

TEST_F(TokenizeTest, ReplacesNeitherAnInputNorATokenizer) {
  const std::string input = scratch_.write("o.bin", text_);
  options_.inputs.paths = {input};
  options_.output = scratch_.path("o");
  options_.format = TokenFileFormat::Raw;
  EXPECT_THAT(refusal(), HasSubstr("--output " + options_.output + ": would replace the input " + input));
  EXPECT_EQ(read_file(input), text_);
  for (const char* name : {"p.bin.unfinished", "p.resume"}) {
    const std::string other = scratch_.write(name, text_);
    options_.inputs.paths = {other};
    options_.output = scratch_.path("p");
    EXPECT_THAT(refusal(), HasSubstr("--output " + options_.output + ": would replace the input " + other));
    EXPECT_EQ(read_file(other), text_);
    std::filesystem::remove(other);
  }
}

TEST_F(TokenizeTest, AFileWithTheNameOfItsProgressIsKept) {
  options_.inputs.paths = {scratch_.write("a.txt", text_)};
  options_.overwrite = false;
  const std::string other = scratch_.write("out.resume", "of a person");
  EXPECT_THAT(refusal(), HasSubstr("would replace " + other + ", which is no progress of this command"));
  EXPECT_EQ(read_file(other), "of a person");
  EXPECT_FALSE(exists("out.bin"));
  options_.overwrite = true;
  run();
  EXPECT_TRUE(exists("out.bin"));
}

TEST_F(TokenizeTest, ReplacesFilesOnlyOnRequest) {
  options_.inputs.paths = {scratch_.write("a.txt", text_)};
  options_.overwrite = false;
  run();
  const std::string tokens = read_file(scratch_.path("out.bin"));
  EXPECT_THAT(refusal(), HasSubstr("out.bin: exists already; give another file, or --overwrite"));
  EXPECT_EQ(read_file(scratch_.path("out.bin")), tokens);
  std::filesystem::remove(scratch_.path("out.bin"));
  EXPECT_THAT(refusal(), HasSubstr("out.idx: exists already"));
  options_.overwrite = true;
  run();
  EXPECT_EQ(read_file(scratch_.path("out.bin")), tokens);
}

TEST_F(TokenizeTest, MakesParentFolders) {
  options_.inputs.paths = {scratch_.write("a.txt", text_)};
  options_.output = scratch_.path("new/folder/out");
  run();
  EXPECT_TRUE(exists("new/folder/out.bin"));
}

TEST_F(TokenizeTest, TwoRunsDoNotWriteTheSameFiles) {
  const TokenWriter other(options_.output, options_.format, 400);
  options_.inputs.paths = {scratch_.write("a.txt", text_)};
  EXPECT_THAT(refusal(), HasSubstr("out.idx.unfinished: another run is writing it"));
}

TEST_F(TokenizeTest, MegatronsFormatNeedsAMarkToKeepEmptyDocuments) {
  options_.inputs.paths = {scratch_.write("a.txt", "")};
  options_.empty = EmptyDocument::Keep;
  options_.end_of_document = "none";
  EXPECT_THAT(refusal(), HasSubstr("--empty keep: Megatron's format has no documents without tokens"));
}

TEST_F(TokenizeTest, RejectedInputLeavesNoFiles) {
  const std::pair<std::vector<std::string>, std::string> refusals[] = {
      {{scratch_.write("bad.txt", "good \xFF bad")}, "bad.txt: byte 5 is not valid UTF-8; give --invalid replace"},
      {{scratch_.write("empty.txt", "")}, "empty.txt: the document is empty; give --empty skip"},
      {{scratch_.write("e.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"\"}\n")},
       "e.jsonl: line 3: the document is empty"},
      {{scratch_.write("f.jsonl", "{\"txt\": \"a\", \"n\": 1}\n")},
       "f.jsonl: line 1: the field 'text' is missing; found: txt, n"},
      {{scratch_.write("g.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n")},
       "g.jsonl: line 2: the field 'text' is not a string"},
      {{scratch_.write("h.jsonl", "{\"text\": \"a\", \"text\": \"b\"}\n")},
       "h.jsonl: line 1: the field 'text' is given twice"},
      {{scratch_.write("i.jsonl", "{\"text\": \"a\"\n")},
       "i.jsonl: line 1: the line does not end with its object; make lines of longer objects: jq -c . FILE"},
      {{scratch_.write("j.jsonl", "[1]\n")}, "j.jsonl: line 1: expected a JSON object"},
      {{scratch_.write("k.jsonl", "{\"text\": \"\xFF\"}\n")},
       "k.jsonl: line 1: is not valid UTF-8; give --invalid replace"},
      {{scratch_.write("m.jsonl", "\n{\"n\": 1, \"text\": \"a \\ud83d b\"}\n")},
       "m.jsonl: line 2: a string has an invalid escape, or half of a character; give --invalid replace"},
      {{scratch_.write("n.jsonl", "{\"text\": \"a\\q\"}\n")}, "n.jsonl: line 1: a string has an invalid escape"},
      {{scratch_.write("o.jsonl", "{\t\"text\": \"a\tb\"}\n")},
       "o.jsonl: line 1: a string has a control character; write it as an escape, such as \\t"},
      {{scratch_.write("p.jsonl", "{\"text\": \"a}\n")}, "p.jsonl: line 1: a string does not end"},
      {{scratch_.write("q.jsonl", "{\"text\": \"a\"} {\"text\": \"b\"}\n")},
       "q.jsonl: line 1: something follows the object; expected one object per line"},
      {{scratch_.write("r.jsonl", "{\"text\" \"a\"}\n")},
       "r.jsonl: line 1: expected a name, a colon, a comma or the end of the object"},
      {{scratch_.write("s.json", "{\"text\": \"a\"}\n")},
       "s.json: is JSON with an object per line, not text; give --field text"},
      {{scratch_.write("t.json", "[{\"text\": \"a\"}]\n")},
       "t.json: is JSON, not text; make a file with an object per line"},
      {{scratch_.write("u.txt.gz", "\x1F\x8B\x08\x08")}, "u.txt.gz: is a gzip archive; unpack it: gunzip -k "},
      {{scratch_.write("v.jsonl", "\x28\xB5\x2F\xFD")},
       "v.jsonl: is an archive, a table or another binary file; unpack it"},
      {{scratch_.write("l.jsonl", "\n \n")}, "the input has no document with a token; nothing is written"},
      {{scratch_.path("none.txt")}, "none.txt: cannot be read (No such file or directory)"},
      {{"/"}, "/: is a directory"},
  };
  for (const auto& [paths, message] : refusals) {
    options_.inputs.paths = paths;
    EXPECT_THAT(refusal(), HasSubstr(message));
    for (const char* name : {"out.bin", "out.idx", "out.bin.unfinished", "out.idx.unfinished", "out.resume"})
      EXPECT_FALSE(exists(name)) << message << ": " << name;
  }
  options_.inputs.paths = {scratch_.write("a.txt", "text")};
  options_.end_of_document = "<end>";
  EXPECT_THAT(refusal(), HasSubstr("--end-of-document: '<end>' is not a token of"));
  options_.end_of_document = "";
  options_.output = scratch_.path("a.txt/out");
  EXPECT_THAT(refusal(), HasSubstr("cannot be written (Not a directory)"));
}

TEST_F(TokenizeTest, OtherFieldsAreNotRead) {
  options_.inputs.paths = {
      scratch_.write("a.jsonl",
                     "\xEF\xBB\xBF{\"score\": NaN, \"text\": \"the God\", \"n\": 123456789012345678901234567890}\n"
                     "{\"title\": \"\\ud83d\", \"\\ud83d\": 1, \"list\": [1, {\"text\": 2}], \"text\": \"heaven\"}\n"),
      scratch_.write("b.ndjson", "{\"text\": \"a\"}\n"), scratch_.write("c.JSONL", "{\"text\": \"b\"}\r\n")};
  EXPECT_EQ(printed(), lines_of_ids(options_.tokenizer, {"the God", "heaven", "a", "b"}));
}

TEST_F(TokenizeTest, HalvesOfCharactersCanBeReplaced) {
  options_.inputs.paths = {scratch_.write("a.jsonl", R"({"text": "a \\ud83d \ud83d\uDE00 \ud83d\ud83d \\ude00 \uDEad"})"
                                                     "\n{\"text\": \"\xFF \\uD83D\", \"\\udE00\": 1}\n")};
  options_.invalid = InvalidText::Replace;
  EXPECT_EQ(printed(),
            lines_of_ids(options_.tokenizer, {"a \\ud83d \U0001F600 \uFFFD\uFFFD \\ude00 \uFFFD", "\uFFFD \uFFFD"}));
}

TEST_F(TokenizeTest, PoliciesForInvalidTextAndEmptyDocuments) {
  options_.inputs.paths = {
      scratch_.write("a.jsonl", "{\"text\": \"\"}\n{\"text\": \"the \xFF God\"}\n{\"text\": \"God\"}\n")};
  options_.invalid = InvalidText::Replace;
  options_.empty = EmptyDocument::Skip;
  EXPECT_EQ(printed(), lines_of_ids(options_.tokenizer, {"the \uFFFD God", "God"}));
  EXPECT_EQ(run().skipped, 1);
  options_.empty = EmptyDocument::Keep;
  EXPECT_EQ(printed(), lines_of_ids(options_.tokenizer, {"", "the \uFFFD God", "God"}));
  EXPECT_EQ(run().documents, 3);
}

TEST_F(TokenizeTest, RawRefusesALargeVocabulary) {
  EXPECT_EQ(token_type(TokenFileFormat::Raw, 65'536), TokenType::U16);
  EXPECT_THROW((void)token_type(TokenFileFormat::Raw, 65'537), ConfigError);
  EXPECT_EQ(token_type(TokenFileFormat::Llmc, 65'537), TokenType::U32);
  EXPECT_EQ(token_type(TokenFileFormat::Megatron, 65'500), TokenType::I32);
}

}  // namespace
}  // namespace chimera::testing
