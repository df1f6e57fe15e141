// Tokenizer folders: files beside the vocabulary are used or rejected.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "support/message_of.h"
#include "support/scratch.h"
#include "tokenizer/tokenizer_folder.h"

namespace chimera::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kGpt2Vocabulary = R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3, "</s>": 4, "<|user|>": 5})";
constexpr const char* kBertWords = "[UNK]\n[CLS]\n[SEP]\nu\nb\nub\n\u00fcb\n\u6f22\u5b57\n\u6f22\n##\u5b57\n[END]\n?\n";

class TokenizerFolderTest : public ::testing::Test {
 protected:
  void write_gpt2() {
    scratch_.write("vocab.json", kGpt2Vocabulary);
    scratch_.write("merges.txt", "a b\n");
  }
  void write_bert() { scratch_.write("vocab.txt", kBertWords); }
  void configure(const std::string& config) { scratch_.write("tokenizer_config.json", config); }

  std::unique_ptr<Tokenizer> open() { return open_tokenizer(scratch_.path("")); }
  TokenIds ids(const std::string& text) { return encode(*open(), text); }
  std::string refusal() {
    return message_of([&] { (void)open(); }, "not refused");
  }
  /// Configurations, and words of their refusals.
  void expect_refusals(const std::vector<std::pair<const char*, const char*>>& refusals) {
    for (const auto& [config, message] : refusals) {
      configure(config);
      EXPECT_THAT(refusal(), AllOf(HasSubstr(message), Not(HasSubstr("\n")))) << config;
    }
  }

  Scratch scratch_;
};

TEST_F(TokenizerFolderTest, EndOfDocumentComesFromTheConfiguration) {
  write_gpt2();
  EXPECT_EQ(open()->end_of_document(), 3);
  for (const char* config : {R"({"eos_token": "</s>"})", R"({"eos_token": {"content": "</s>", "lstrip": false}})"}) {
    configure(config);
    EXPECT_EQ(open()->end_of_document(), 4) << config;
    EXPECT_EQ(ids("ab</s>a<|endoftext|>"), (TokenIds{2, 4, 0, 3})) << "named tokens are special";
  }
}

TEST_F(TokenizerFolderTest, EndOfDocumentOfWordsToo) {
  write_bert();
  EXPECT_EQ(open()->end_of_document(), 2);
  configure(R"({"eos_token": "[END]"})");
  EXPECT_EQ(open()->end_of_document(), 10);
}

TEST_F(TokenizerFolderTest, BertsNormalizerComesFromTheConfiguration) {
  write_bert();
  EXPECT_EQ(ids("\u00dcb \u6f22\u5b57"), (TokenIds{5, 8, 0})) << "as bert-base-uncased has it";
  configure(R"({"strip_accents": false})");
  EXPECT_EQ(ids("\u00dcb"), (TokenIds{6}));
  configure(R"({"strip_accents": null, "do_lower_case": false})");
  EXPECT_EQ(ids("\u00fcb"), (TokenIds{6}));
  configure(R"({"strip_accents": true, "do_lower_case": false})");
  EXPECT_EQ(ids("\u00fcb"), (TokenIds{5}));
  configure(R"({"tokenize_chinese_chars": false})");
  EXPECT_EQ(ids("\u6f22\u5b57"), (TokenIds{7}));
}

TEST_F(TokenizerFolderTest, BertsSpecialTokensComeFromTheConfiguration) {
  write_bert();
  configure(R"({"unk_token": "?", "sep_token": "[END]", "cls_token": {"content": "[SEP]"}})");
  EXPECT_EQ(ids("x[CLS]"), (TokenIds{11, 11, 11, 11})) << "the [CLS] of others is text";
  EXPECT_EQ(open()->with_special({5}), (TokenIds{2, 5, 10}));
}

TEST_F(TokenizerFolderTest, ClassesOfTheSamePipelineAreRead) {
  write_bert();
  for (const char* name : {"BertTokenizer", "BertTokenizerFast", "DistilBertTokenizerFast"}) {
    configure(std::string(R"({"tokenizer_class": ")") + name + "\"}");
    EXPECT_EQ(refusal(), "not refused") << name;
  }
  configure(R"({"tokenizer_class": "BertJapaneseTokenizer"})");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("vocab.txt: the tokenizer_class BertJapaneseTokenizer has another pipeline"),
                               HasSubstr("save a tokenizer.json")));
  std::filesystem::remove(scratch_.path("vocab.txt"));
  write_gpt2();
  configure(R"({"tokenizer_class": "GPT2TokenizerFast"})");
  EXPECT_EQ(refusal(), "not refused");
  configure(R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_THAT(refusal(), HasSubstr("vocab.json: the tokenizer_class Qwen2Tokenizer has another pipeline"));
}

TEST_F(TokenizerFolderTest, SettingsThatWouldChangeIdsAreRejectedByName) {
  write_gpt2();
  expect_refusals({
      {R"({"add_prefix_space": true})", "vocab.json: add_prefix_space of tokenizer_config.json is not supported"},
      {R"({"add_bos_token": true})", "add_bos_token of"},
      {R"({"do_basic_tokenize": false})", "do_basic_tokenize of"},
      {R"({"never_split": ["ab"]})", "never_split of"},
      {R"({"additional_special_tokens": ["<|user|>"]})", "additional_special_tokens of"},
      {R"({"eos_token": {"content": "</s>", "lstrip": true}})", "eos_token of"},
      {R"({"eos_token": "<end>"})", "'<end>', the eos_token of tokenizer_config.json, is not in the vocabulary"},
      {R"({"added_tokens_decoder": {"5": {"content": "<|user|>", "special": true}}})",
       "'<|user|>' with the id 5 is not a special token of"},
      {R"({"added_tokens_decoder": {"7": {"content": "<|endoftext|>"}}})", "'<|endoftext|>' with the id 7 is no"},
      {R"({"added_tokens_decoder": {"3": {"content": "<|endoftext|>", "rstrip": true}}})", "added_tokens_decoder of"},
      {R"({"added_tokens_decoder": {"x": {"content": "ab"}}})", "added_tokens_decoder: 'x' is not a token id"},
      {R"({"added_tokens_decoder": ["ab"]})", "added_tokens_decoder: expected an object, found array"},
      {R"({"eos_token": 5})", "tokenizer_config.json: eos_token: "},
      {"[]", "tokenizer_config.json: top level: expected an object, found array"},
  });
  configure(R"({"add_prefix_space": false, "add_bos_token": null, "additional_special_tokens": [], "errors": "replace",
      "added_tokens_decoder": {"3": {"content": "<|endoftext|>", "lstrip": false, "normalized": true}}})");
  EXPECT_EQ(refusal(), "not refused") << "that of GPT-2 itself";
}

constexpr const char* kByteLevelJson = R"({
    "added_tokens": [{"id": 5, "content": "<s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "e": 3, "\u0120": 4}, "merges": [["a", "b"]]}})";

/// AutoTokenizer of transformers 5 gives the same ids (tokenizers_test.py).
TEST_F(TokenizerFolderTest, NamedTokensAreFoundInTextsBesideATokenizerJson) {
  scratch_.write("tokenizer.json", kByteLevelJson);
  EXPECT_EQ(ids("eab<s>"), (TokenIds{3, 2, 5}));
  for (const char* config : {R"({"pad_token": "b"})", R"({"additional_special_tokens": ["b"]})",
                             R"({"extra_special_tokens": {"end": {"content": "b"}}})"}) {
    configure(config);
    EXPECT_EQ(ids("eab<s>"), (TokenIds{3, 0, 1, 5})) << config << ": b is found before words are made";
    EXPECT_EQ(open()->decode(TokenIds{0, 1}), "a") << config;
  }
  configure(R"({"pad_token": "[PAD]", "eos_token": "<s>"})");
  EXPECT_EQ(ids("ab"), (TokenIds{2})) << "a token that only pads may be missing";
}

TEST_F(TokenizerFolderTest, SettingsThatContradictATokenizerJsonAreRejectedByName) {
  scratch_.write("tokenizer.json", kByteLevelJson);
  expect_refusals({
      {R"({"add_prefix_space": true})", "tokenizer_config.json: add_prefix_space is true"},
      {R"({"fix_mistral_regex": true})", "tokenizer_config.json: fix_mistral_regex is true"},
      {R"({"split_special_tokens": true})", "split_special_tokens is true"},
      {R"({"additional_special_tokens": ["<|user|>"]})", "'<|user|>' is not a token of"},
      {R"({"extra_special_tokens": {"user": "<|user|>"}})", "'<|user|>' is not a token of"},
      {R"({"added_tokens_decoder": {"6": {"content": "<|user|>"}}})", "'<|user|>' is not a token of"},
      {R"({"add_prefix_space": "yes"})", "tokenizer_config.json: add_prefix_space: "},
  });
  configure(R"({"add_prefix_space": false, "fix_mistral_regex": false, "split_special_tokens": false,
      "added_tokens_decoder": {"5": {"content": "<s>"}}, "do_lower_case": true})");
  EXPECT_EQ(refusal(), "not refused");
  scratch_.write("tokenizer.json", R"({
      "normalizer": {"type": "BertNormalizer", "lowercase": true}, "pre_tokenizer": {"type": "BertPreTokenizer"},
      "model": {"type": "WordPiece", "unk_token": "?", "vocab": {"?": 0, "a": 1}}})");
  configure(R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})");
  EXPECT_THAT(refusal(), HasSubstr("do_lower_case is false, so that transformers would give other ids than"));
  configure(R"({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": false})");
  EXPECT_EQ(refusal(), "not refused");
}

TEST_F(TokenizerFolderTest, AddedTokensOutsideTheVocabularyAreRejected) {
  write_gpt2();
  scratch_.write("added_tokens.json", R"({"<|new|>": 6})");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("added_tokens.json: '<|new|>' with the id 6 is not a special token of"),
                               HasSubstr("save a tokenizer.json")));
  scratch_.write("added_tokens.json", R"({"<|endoftext|>": 3})");
  EXPECT_EQ(refusal(), "not refused");
  scratch_.write("added_tokens.json", R"({"<|endoftext|>": "3"})");
  EXPECT_THAT(refusal(), HasSubstr("added_tokens.json: top level: the id of '<|endoftext|>' is not a whole number"));
}

TEST_F(TokenizerFolderTest, UnknownEndOfDocumentIsRejected) {
  scratch_.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "</e>": 1}, "merges": []}})");
  configure(R"({"eos_token": "</s>", "add_prefix_space": true, "strip_accents": false})");
  EXPECT_THAT(refusal(),
              HasSubstr("tokenizer.json: '</s>', the eos_token of tokenizer_config.json, is not one of its"));
  configure(R"({"eos_token": "</e>", "add_prefix_space": true, "strip_accents": false})");
  EXPECT_EQ(open()->end_of_document(), 1) << "the rest is what tokenizer.json says";
}

std::vector<std::string> names(const std::vector<TokenizerFile>& files) {
  std::vector<std::string> names;
  for (const TokenizerFile& file : files) names.push_back(file.name);
  return names;
}

TEST_F(TokenizerFolderTest, ListsTheFilesThatOpeningReads) {
  write_gpt2();
  EXPECT_THAT(names(tokenizer_files(scratch_.path("vocab.json"))), ElementsAre("vocab.json", "merges.txt"));
  configure("{}");
  scratch_.write("added_tokens.json", "{}");
  for (const char* path : {"vocab.json", "merges.txt"}) {
    const std::vector<TokenizerFile> files = tokenizer_files(scratch_.path(path));
    EXPECT_THAT(names(files), ElementsAre("vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json"));
    for (const TokenizerFile& file : files) EXPECT_EQ(file.path, scratch_.path(file.name));
  }
  const std::string json = scratch_.write("t.json", "{}");
  EXPECT_THAT(names(tokenizer_files(json)), ElementsAre("tokenizer.json", "tokenizer_config.json"));
  EXPECT_EQ(tokenizer_files(json).front().path, json);
  EXPECT_THAT(names(tokenizer_files(scratch_.path(""))),
              ElementsAre("tokenizer_config.json", "added_tokens.json", "vocab.json", "merges.txt"));
  EXPECT_THAT(tokenizer_files("bytes"), IsEmpty());
}

TEST_F(TokenizerFolderTest, FilesThatWereNotDownloadedAreNamed) {
  const char* const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 7\n";
  write_gpt2();
  scratch_.write("merges.txt", "<!DOCTYPE html>\n");
  EXPECT_THAT(refusal(), HasSubstr("merges.txt: is a web page, not the file itself"));
  scratch_.write("vocab.json", pointer);
  EXPECT_THAT(refusal(), HasSubstr("vocab.json: is a pointer of Git LFS, not the file itself; fetch it: git lfs pull"));
  scratch_.write("tokenizer.json", pointer);
  EXPECT_THAT(refusal(), HasSubstr("tokenizer.json: is a pointer of Git LFS"));
}

TEST_F(TokenizerFolderTest, MergesMustFitTheVocabulary) {
  write_gpt2();
  std::filesystem::rename(scratch_.path("vocab.json"), scratch_.path("x_vocab.json"));
  scratch_.write("x_merges.txt", "a c\n");
  EXPECT_THAT([&] { (void)open_tokenizer(scratch_.path("x_vocab.json")); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr(
                  "x_merges.txt: merge 1: 'c' is not in the vocabulary; give vocabulary and merges of the same")));
}

TEST_F(TokenizerFolderTest, UnreadableFolderIsRejected) {
  const std::string folder = scratch_.path(std::string(300, 'x'));  // longer than a file name may be
  EXPECT_THROW((void)open_tokenizer(folder), ConfigError);
  EXPECT_THROW((void)open_tokenizer(folder + "/vocab.json"), ConfigError);
  EXPECT_THAT(tokenizer_files(folder), IsEmpty());
}

}  // namespace
}  // namespace chimera::testing
