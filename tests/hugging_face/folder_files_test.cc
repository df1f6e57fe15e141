#include "hugging_face/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "support/scratch.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer_folder.h"

namespace chimera {
namespace {

using testing::read_file;
using testing::Scratch;
using ::testing::UnorderedElementsAre;

class FolderFilesTest : public ::testing::Test {
 protected:
  /// File names in a folder after the tokenizer of `path` was added.
  std::vector<std::string> added(const std::string& model, const std::string& path) {
    StagedFolder staged(out_);
    add_tokenizer(staged, find_model(model), path, tokenizer_texts(path));
    staged.commit();
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(out_)) names.push_back(entry.path().filename());
    return names;
  }
  [[nodiscard]] std::string config() const { return read_file(out_ + "/tokenizer_config.json"); }

  Scratch scratch_;
  std::string out_ = scratch_.path("out");
};

TEST_F(FolderFilesTest, ByteTokenizerIsWrittenAndReadBack) {
  EXPECT_THAT(added("gpt2-tiny", "bytes"), UnorderedElementsAre("tokenizer.json", "tokenizer_config.json"));
  EXPECT_TRUE(makes_bytes(out_));
  const auto tokenizer = open_tokenizer(out_);
  EXPECT_EQ(tokenizer->vocabulary_size(), 256);
  const std::string text = "h\xC3\xA9llo \xF0\x9F\x90\x8D\n\t\x7F 12  3";
  const TokenIds expected = encode(*open_tokenizer("bytes"), text);
  EXPECT_EQ(encode(*tokenizer, text), expected);
  EXPECT_EQ(tokenizer->decode(expected), text);
}

TEST_F(FolderFilesTest, BertsSpecialTokensHaveNames) {
  static_cast<void>(added("bert-tiny", "bytes"));
  const auto tokenizer = open_tokenizer(out_);
  EXPECT_EQ(tokenizer->vocabulary_size(), 260);
  EXPECT_EQ(tokenizer->find_token("[PAD]"), 256);
  EXPECT_EQ(tokenizer->find_token("[MASK]"), 259);
  EXPECT_EQ(tokenizer->decode(TokenIds{257, 'a'}), "a") << "special tokens are left out";
  EXPECT_EQ(tokenizer->decode(TokenIds{257, 'a'}, /*with_special=*/true), "[CLS]a");
  EXPECT_THAT(tokenizer->with_special({'a'}), ::testing::ElementsAre(257, 'a', 258));
  EXPECT_EQ(read_json(config())["mask_token"], "[MASK]");
  EXPECT_TRUE(makes_bytes(out_));
}

TEST_F(FolderFilesTest, FileIsCopiedWithItsCompanions) {
  const std::string tokenizer = scratch_.write("mine.json", to_tokenizer_json(train_bpe({}, {.vocabulary = 257})));
  static_cast<void>(scratch_.write("chat_template.jinja", "hello"));
  static_cast<void>(scratch_.write("vocab.txt", "of another"));
  EXPECT_THAT(added("gpt2-tiny", tokenizer),
              UnorderedElementsAre("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"));
  EXPECT_EQ(read_file(out_ + "/tokenizer.json"), read_file(tokenizer));
  EXPECT_EQ(read_json(config())["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_FALSE(makes_bytes(out_));
}

TEST_F(FolderFilesTest, VocabularyAndMergesStayTogether) {
  static_cast<void>(scratch_.write("gpt2-vocab.json", "{}"));
  const std::string merges = scratch_.write("gpt2-merges.txt", "");
  EXPECT_THAT(added("gpt2-tiny", merges), UnorderedElementsAre("vocab.json", "merges.txt", "tokenizer_config.json"));
  EXPECT_EQ(read_json(config())["tokenizer_class"], "GPT2Tokenizer");
}

TEST_F(FolderFilesTest, FoldersAreCopiedUnchanged) {
  std::filesystem::create_directory(scratch_.path("in"));
  static_cast<void>(scratch_.write("in/vocab.txt", "[UNK]\n"));
  static_cast<void>(scratch_.write("in/tokenizer_config.json", "{\"a\":1}"));
  static_cast<void>(scratch_.write("in/tokenizer.model", "pieces"));
  static_cast<void>(scratch_.write("in/readme.md", "read me"));
  EXPECT_THAT(added("bert-tiny", scratch_.path("in")),
              UnorderedElementsAre("vocab.txt", "tokenizer_config.json", "tokenizer.model"));
  EXPECT_EQ(config(), "{\"a\":1}");
}

TEST_F(FolderFilesTest, UnknownTokenizersAreNotWritten) {
  std::filesystem::create_directory(scratch_.path("in"));
  EXPECT_THAT(added("gpt2-tiny", scratch_.path("in")), ::testing::IsEmpty());
  std::filesystem::remove(out_);
  EXPECT_THAT(added("gpt2-tiny", ""), ::testing::IsEmpty());
}

TEST_F(FolderFilesTest, BytesNeedRoom) {
  require_room_for_bytes(find_model("gpt2-tiny"));
  require_room_for_bytes(find_model("bert-tiny"));
  ModelConfig small = find_model("bert-tiny");
  small.vocabulary = 259;
  EXPECT_THAT(
      [&] { require_room_for_bytes(small); },
      ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("a vocabulary of 259; bytes as tokens need 260")));
}

}  // namespace
}  // namespace chimera
