// Invalid tokenizer files cause a one-line error that names the file, the place and the problem.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "support/message_of.h"
#include "tokenizer/tokenizer_folder.h"
#include "tokenizer/tokenizer_json.h"

namespace chimera {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

template <class Read>
std::string refusal_of(Read read) {
  return testing::message_of([&] { read(); }, "not refused");
}

/// A byte-level BPE of a few tokens, with `changes` (a JSON merge patch).
std::string file_with(const std::string& changes) {
  json file = read_json(R"({
    "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");
  file.merge_patch(read_json(changes));
  return json_text(file);
}

/// Changes of the file, and words of its refusal.
void expect_refusals(const std::vector<std::pair<const char*, const char*>>& refusals) {
  for (const auto& [changes, message] : refusals) {
    const std::string refusal =
        refusal_of([&, &changed = changes] { (void)tokenizer_from_json(file_with(changed), "t.json"); });
    EXPECT_THAT(refusal, AllOf(HasSubstr("t.json: "), HasSubstr(message), Not(HasSubstr("\n")))) << changes;
  }
}

TEST(TokenizerRefusalTest, UnchangedFileIsValid) {
  const auto tokenizer = tokenizer_from_json(file_with("{}"), "t.json");
  EXPECT_EQ(encode(*tokenizer, "<s>abba"), (TokenIds{3, 2, 1, 0}));
}

/// transformers resets both when it loads a file.
TEST(TokenizerRefusalTest, TruncationAndPaddingOfTheWriterAreIgnored) {
  const auto tokenizer =
      tokenizer_from_json(file_with(R"({"truncation": {"max_length": 2}, "padding": {"pad_id": 0}})"), "t.json");
  EXPECT_EQ(encode(*tokenizer, "<s>abba"), (TokenIds{3, 2, 1, 0}));
}

TEST(TokenizerRefusalTest, UnsupportedFeaturesAreRejectedByName) {
  expect_refusals({
      {R"({"model": {"type": "Unigram"}})", "the model 'Unigram' is not supported; supported: BPE, WordPiece"},
      {R"({"model": {"dropout": 0.1}})", "model: dropout is not supported"},
      {R"({"model": {"end_of_word_suffix": "</w>"}})", "a end_of_word_suffix is not supported for BPE"},
      {R"({"model": {"continuing_subword_prefix": "##"}})", "a continuing_subword_prefix is not supported for BPE"},
      {R"({"model": {"byte_fallback": true}})", "byte_fallback with a ByteLevel pre-tokenizer is not supported"},
      {R"({"model": {"colour": 1}})", "unknown field 'colour'"},
      {R"({"normalizer": {"type": "NFKC"}})",
       "normalizer: the normalizer 'NFKC' is not supported; supported: Sequence"},
      {R"({"normalizer": {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}})", "a regular expression"},
      {R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": []}]}})",
       "normalizer.normalizers[0]: a Sequence inside a Sequence is not supported"},
      {R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": 5}]}})", "normalizer.normalizers[0].type: "},
      {R"({"pre_tokenizer": {"type": "Whitespace"}})", "the pre-tokenizer 'Whitespace' is not supported"},
      {R"({"pre_tokenizer": {"type": "Split", "add_prefix_space": null, "pattern": {"Regex": "\\d"},
          "behavior": "Isolated", "invert": false}})",
       "the pattern '\\d' is not a pattern of GPT-2, Llama 3 or Qwen 2"},
      {R"({"post_processor": {"type": "RobertaProcessing"}})",
       "the post-processor 'RobertaProcessing' is not supported"},
      {R"({"decoder": {"type": "CTC"}})", "the decoder 'CTC' is not supported"},
  });
}

TEST(TokenizerRefusalTest, MalformedFilesAreRejectedWithThePlace) {
  expect_refusals({
      {R"({"model": null})", "field 'model' is missing"},
      {R"({"model": {"vocab": {"a": 1}}})", "model.vocab: the id 1 belongs to 'a' and to 'b'"},
      {R"({"model": {"vocab": {"a": -1}}})", "the id of 'a' is not a whole number from 0 to 4194303"},
      {R"({"model": {"vocab": {"a": 99999999}}})", "the id of 'a' is not a whole number from 0 to 4194303"},
      {R"({"model": {"vocab": {"a": "0"}}})", "the id of 'a' is not a whole number"},
      {R"({"model": {"vocab": ["a"]}})", "model.vocab: expected an object, found array"},
      {R"({"model": {"merges": [["a", "c"]]}})", "t.json: merge 1: 'c' is not in the vocabulary"},
      {R"({"model": {"merges": [["b", "a"]]}})", "t.json: merge 1: 'ba' is not in the vocabulary"},
      {R"({"model": {"merges": ["a b", "a"]}})", "model.merges: merge 2 is neither"},
      {R"({"model": {"merges": [["a", "b", "c"]]}})", "model.merges: merge 1 is neither"},
      {R"({"model": {"unk_token": "?"}})", "unk_token '?' is not in the vocabulary"},
      {R"({"added_tokens": [{"id": 7, "content": "<s>"}]})", "'<s>' has the id 7, but tokenizers gives it 3"},
      {R"({"added_tokens": [{"id": 3, "content": ""}]})", "added_tokens[0]: the content is empty"},
      {R"({"added_tokens": [{"id": 3, "content": "x"}, {"id": 4, "content": "x"}]})", "'x' is given twice"},
      {R"({"post_processor": {"type": "BertProcessing", "sep": ["x", 9], "cls": ["y", 0]}})", "no token has the id 9"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q", "type_id": 0}}],
          "pair": [], "special_tokens": {}}})",
       "'q' is not among special_tokens"},
  });
}

TEST(TokenizerRefusalTest, RepeatedFieldOrToken) {
  const auto refusal = [](const std::string& text) {
    return refusal_of([&] { (void)tokenizer_from_json(text, "t.json"); });
  };
  EXPECT_THAT(refusal(R"({"model": {"vocab": {"a": 0, "a": 1}}})"),
              HasSubstr("model.vocab.a: the field is given twice"));
  EXPECT_THAT(refusal("[]"), HasSubstr("expected an object, found array"));
  EXPECT_THAT(refusal("{\"model\": \"\xFF\"}"), HasSubstr("JSON: "));
  EXPECT_THAT(refusal(""), HasSubstr("JSON: "));
}

TEST(TokenizerRefusalTest, MergesAndWordsNameTheLine) {
  const auto merges = [](const std::string& text) {
    return refusal_of(
        [&] { (void)tokenizer_from_merges(R"({"a": 0, "b": 1, "ab": 2})", "vocab.json", text, "merges.txt"); });
  };
  EXPECT_EQ(merges("#version: 0.2\na b\n"), "not refused");
  EXPECT_EQ(merges("#version: 0.2\na b c\n"), "merges.txt: line 2: expected two tokens with a blank between them");
  EXPECT_EQ(merges("a\n"), "merges.txt: line 1: expected two tokens with a blank between them");
  EXPECT_EQ(merges("b a\n"),
            "merges.txt: merge 1: 'ba' is not in the vocabulary; give vocabulary and merges of the same tokenizer");
  for (const char* empty : {"", "#version: 0.2\n"}) {
    EXPECT_EQ(merges(empty),
              "merges.txt: makes 0 of the 1 tokens of several letters in vocab.json; give the merges that "
              "were saved with this vocabulary");
  }
  EXPECT_THAT(merges("\xEF\xBB\xBF#version: 0.2\na b\n"), HasSubstr("merges.txt: begins with a byte order mark"));
  EXPECT_EQ(merges("a \xFF\n"), "merges.txt: byte 2 is not valid UTF-8");
  const auto words = [](const std::string& text) {
    return refusal_of([&] { (void)tokenizer_from_words(text, "vocab.txt"); });
  };
  EXPECT_EQ(words("[UNK]\na\n"), "not refused");
  EXPECT_THAT(words("\xEF\xBB\xBF[UNK]\na\n"),
              HasSubstr("vocab.txt: begins with a byte order mark, which would be part"));
  EXPECT_THAT(words("a\n"), HasSubstr("vocab.txt: '[UNK]' is missing"));
  EXPECT_THAT(words("[UNK]\na\na\n"), HasSubstr("vocab.txt: line 3: 'a' is given twice"));
  EXPECT_THAT(words("[UNK]\n\na\n"), HasSubstr("vocab.txt: line 2 is empty"));
}

TEST(TokenizerRefusalTest, FolderWithoutATokenizer) {
  EXPECT_THAT(refusal_of([] { (void)open_tokenizer("/"); }), HasSubstr("holds no tokenizer; expected tokenizer.json"));
  EXPECT_THAT(refusal_of([] { (void)open_tokenizer("/no/such.json"); }),
              HasSubstr("the tokenizer /no/such.json does not exist"));
}

}  // namespace
}  // namespace chimera
