// The tokenizer of a checkpoint: its own copy, and in checkpoints of older versions a path.

#include "train/setup/data_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/manifest.h"
#include "core/error.h"
#include "support/scratch.h"
#include "tokenizer/tokenizer_folder.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr const char* kWords = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nking\n";

/// A checkpoint step-00000002 in the folder `run` of a scratch folder, without tensors.
struct RecordedTokenizerTest : ::testing::Test {
  std::string save(const nlohmann::ordered_json& record) const {
    std::filesystem::create_directories(scratch.path("run/step-00000002"));
    const Manifest manifest{.step = 2, .run = {{"tokenizer", record}}, .files = {}};
    scratch.write("run/step-00000002/manifest.json", to_text(manifest));
    return scratch.path("run/step-00000002");
  }
  /// As a run of this version saves it.
  std::string save_with_copy() const {
    const std::string tokenizer = scratch.write("vocab.txt", kWords);
    const std::string checkpoint = save(tokenizer_record(tokenizer, tokenizer_texts(tokenizer)));
    for (const auto& [name, text] : tokenizer_texts(tokenizer)) scratch.write("run/step-00000002/" + name, text);
    std::filesystem::remove(tokenizer);
    return checkpoint;
  }
  testing::Scratch scratch;
};

TEST_F(RecordedTokenizerTest, IsTheCopyInTheCheckpoint) {
  const std::string checkpoint = save_with_copy();
  EXPECT_EQ(tokenizer_of_folder(checkpoint), checkpoint);
  EXPECT_EQ(open_tokenizer(checkpoint)->vocabulary_size(), 6);
  EXPECT_EQ(recorded_source(read_manifest(checkpoint).run), scratch.path("vocab.txt"));
}

TEST_F(RecordedTokenizerTest, OfAnOlderVersionIsLookedUpBesideTheRunFirst) {
  std::filesystem::create_directory(scratch.path("old"));
  const std::string typed = scratch.write("old/vocab.txt", kWords);
  const std::string checkpoint = save(typed);
  EXPECT_EQ(tokenizer_of_folder(checkpoint), typed);
  const std::string beside = scratch.write("vocab.txt", kWords);
  EXPECT_EQ(tokenizer_of_folder(checkpoint), beside);
  const std::string inside = scratch.write("run/vocab.txt", kWords);
  EXPECT_EQ(tokenizer_of_folder(checkpoint + "/"), inside);
  std::filesystem::remove(beside);
  std::filesystem::remove(inside);
  std::filesystem::remove(typed);
  EXPECT_THAT(
      [&] { (void)tokenizer_of_folder(checkpoint); },
      ThrowsMessage<ConfigError>(HasSubstr("the run's tokenizer " + typed + " is missing, also beside the run")));
}

TEST_F(RecordedTokenizerTest, OfAnOlderVersionMayBeARelativePath) {
  const std::string checkpoint = save("words/vocab.txt");
  EXPECT_THAT([&] { (void)tokenizer_of_folder(checkpoint); }, ThrowsMessage<ConfigError>(HasSubstr("words/vocab.txt")));
  std::filesystem::create_directory(scratch.path("words"));
  const std::string beside = scratch.write("words/vocab.txt", kWords);
  EXPECT_EQ(tokenizer_of_folder(checkpoint), beside);
}

TEST_F(RecordedTokenizerTest, MayBeBytesOrUnknown) {
  EXPECT_EQ(tokenizer_of_folder(save("bytes")), "bytes");
  EXPECT_EQ(tokenizer_of_folder(save(tokenizer_record("bytes", {}))), "bytes");
  EXPECT_THAT(tokenizer_of_folder(save(tokenizer_record("", {}))), IsEmpty());
  EXPECT_THAT(tokenizer_of_folder(save("")), IsEmpty());
}

TEST_F(RecordedTokenizerTest, ADamagedManifestIsAnError) {
  const std::string checkpoint = save_with_copy();
  scratch.write("run/step-00000002/manifest.json", "{}");
  EXPECT_THROW((void)tokenizer_of_folder(checkpoint), ConfigError);
}

}  // namespace
}  // namespace chimera
