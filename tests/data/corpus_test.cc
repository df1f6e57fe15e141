#include "data/corpus.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/error.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CorpusTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return scratch_.path(name); }
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    return scratch_.write(name, text);
  }

  testing::Scratch scratch_;
};

Corpus open_text(const std::string& path) { return open_corpus({.data = path}); }

const TokenView& only_source(const Corpus& corpus, Split split) { return corpus.split(split).sources.at(0); }

std::string text_of(const TokenView& view) {
  const std::vector<std::int64_t> tokens = view.read(0, view.size());
  return {tokens.begin(), tokens.end()};
}

auto is_refused(const std::string& reason) {
  return ::testing::ThrowsMessage<ConfigError>(AllOf(HasSubstr(reason), ::testing::Not(HasSubstr("\n"))));
}

void expect_refused(const std::string& path, const std::string& reason) {
  EXPECT_THAT([&] { static_cast<void>(open_text(path)); }, is_refused(path + ": " + reason));
}

TEST_F(CorpusTest, TokensAreTheBytesOfTheText) {
  const Corpus corpus = open_text(write("a.txt", "h\xC3\xA9!"));
  EXPECT_THAT(only_source(corpus, Split::Train).read(0, 4), ::testing::ElementsAre('h', 0xC3, 0xA9, '!'));
}

TEST_F(CorpusTest, TheLastTwentiethIsForValidation) {
  const Corpus corpus = open_text(write("a.txt", fmt::format("{:t>38}vv", "")));
  EXPECT_EQ(text_of(only_source(corpus, Split::Train)), std::string(38, 't'));
  EXPECT_EQ(text_of(only_source(corpus, Split::Validation)), "vv");
  EXPECT_EQ(only_source(corpus, Split::Train).name(), path("a.txt") + " (training)");
  EXPECT_EQ(only_source(corpus, Split::Validation).name(), path("a.txt") + " (validation)");
}

TEST_F(CorpusTest, AShortTextHasNothingForValidation) {
  const Corpus corpus = open_text(write("a.txt", "short"));
  EXPECT_EQ(only_source(corpus, Split::Train).size(), 5);
  EXPECT_EQ(only_source(corpus, Split::Validation).size(), 0);
}

TEST_F(CorpusTest, KeepsItsTokensWhenMoved) {
  Corpus corpus = open_text(write("a.txt", "text"));
  const Corpus moved = std::move(corpus);
  EXPECT_EQ(text_of(only_source(moved, Split::Train)), "text");
}

TEST_F(CorpusTest, RefusesWhatIsNotAText) {
  expect_refused(path("missing.txt"), "No such file or directory");
  expect_refused(write("a.txt", "text") + "/b.txt", "Not a directory");
  expect_refused(write("empty.txt", ""), "it is empty");
  expect_refused("/dev/null", "it is not a regular file");
  expect_refused("-",
                 "it is standard input; write the text to a file, or make tokens of it: COMMAND | chimera tokenize -");
}

TEST_F(CorpusTest, RefusesAPipeWithoutWaitingForItsWriter) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_refused(path("pipe"), "it is not a regular file; write the text to a file, or make tokens of it");
}

/// Drops root, which can read every file, while this object exists.
class WithoutRoot {
 public:
  WithoutRoot() {
    constexpr uid_t kNobody = 65534;
    if (is_root_) EXPECT_EQ(::seteuid(kNobody), 0);
  }
  WithoutRoot& operator=(WithoutRoot&&) = delete;
  ~WithoutRoot() {
    if (is_root_) EXPECT_EQ(::seteuid(0), 0);
  }

 private:
  bool is_root_ = ::geteuid() == 0;
};

TEST_F(CorpusTest, RefusesAnUnreadableFile) {
  using std::filesystem::perms;
  const std::string file = write("secret.txt", "text");
  std::filesystem::permissions(path(""), perms::owner_all | perms::others_read | perms::others_exec);
  std::filesystem::permissions(file, perms::none);
  const WithoutRoot somebody;
  expect_refused(file, "Permission denied");
}

Corpus open_with(const std::string& data, const std::string& validation) {
  return open_corpus({.data = data, .validation = validation});
}

TEST_F(CorpusTest, AShareOfTheDataMayBeForValidation) {
  const Corpus corpus = open_with(write("a.txt", "0123456789"), "0.39");
  EXPECT_EQ(text_of(only_source(corpus, Split::Train)), "0123456");
  EXPECT_EQ(text_of(only_source(corpus, Split::Validation)), "789");
  EXPECT_EQ(only_source(open_with(path("a.txt"), "0"), Split::Validation).size(), 0);
}

/// Earlier versions used "size / 20"; the share must give the same split.
TEST(ValidationShareTest, FivePercentIsATwentieth) {
  for (std::int64_t size = 0; size < 100'000; ++size)
    ASSERT_EQ(static_cast<std::int64_t>(static_cast<double>(size) * kValidationShare), size / 20);
  for (std::int64_t size = 1'000'000'000'000 - 50; size < 1'000'000'000'000 + 50; ++size)
    ASSERT_EQ(static_cast<std::int64_t>(static_cast<double>(size) * kValidationShare), size / 20);
}

TEST_F(CorpusTest, ValidationMayHaveASeparateFile) {
  const Corpus corpus = open_with(write("a.txt", "0123456789"), write("b.txt", "xyz"));
  EXPECT_EQ(text_of(only_source(corpus, Split::Train)), "0123456789");
  EXPECT_EQ(text_of(only_source(corpus, Split::Validation)), "xyz");
  EXPECT_EQ(corpus.opened.files.size(), 2U) << "both belong to what ranks must have in common";
}

TEST_F(CorpusTest, RejectsInvalidValidation) {
  const std::string text = write("a.txt", "text");
  for (const std::string share : {"1", "-0.1", "7"}) {
    EXPECT_THAT([&] { open_with(text, share); },
                is_refused("--validation " + share + ": expected a share of at least 0 and below 1, or a file"));
  }
  EXPECT_THAT([&] { open_with(text, path("missing")); }, is_refused("No such file"));
}

TEST_F(CorpusTest, AFoldersShardsForValidationNeedNoShare) {
  std::filesystem::create_directory(path("shards"));
  static_cast<void>(write("shards/train.txt", "training"));
  static_cast<void>(write("shards/val.txt", "v"));
  const Corpus corpus = open_text(path("shards"));
  EXPECT_EQ(text_of(only_source(corpus, Split::Train)), "training");
  EXPECT_EQ(text_of(only_source(corpus, Split::Validation)), "v");
  EXPECT_THAT([&] { open_with(path("shards"), "0.1"); }, is_refused("has shards for validation; leave out the share"));
}

TEST_F(CorpusTest, ValidationMayBeAFolder) {
  std::filesystem::create_directory(path("shards"));
  static_cast<void>(write("shards/val_0.txt", "v"));
  const Corpus apart = open_with(write("a.txt", "training"), path("shards"));
  EXPECT_EQ(text_of(only_source(apart, Split::Validation)), "v");
  static_cast<void>(write("shards/train.txt", "training"));
  const Corpus same = open_with(path("shards"), path("shards"));
  EXPECT_EQ(text_of(only_source(same, Split::Train)), "training");
  EXPECT_EQ(text_of(only_source(same, Split::Validation)), "v") << "not what is trained on";
}

TEST_F(CorpusTest, RefusesToTrainOnShardsForValidation) {
  std::filesystem::create_directory(path("shards"));
  static_cast<void>(write("shards/val_0.txt", "v"));
  EXPECT_THAT([&] { open_text(path("shards")); }, is_refused("has only shards for validation"));
}

TEST_F(CorpusTest, UnreadShardsAreNotListed) {
  std::filesystem::create_directory(path("shards"));
  for (const char* name : {"shards/train.txt", "shards/val_1.txt", "shards/val_2.txt", "shards/val_3.txt"})
    static_cast<void>(write(name, "text"));
  const Corpus corpus = open_with(path("shards"), write("b.txt", "xyz"));
  std::vector<std::string> names;
  for (const DataFile* file : corpus.opened.files) names.push_back(file->path());
  EXPECT_THAT(names, ::testing::ElementsAre(path("shards/train.txt"), path("b.txt")));
}

TEST_F(CorpusTest, AMixtureKeepsAShareOfEverySource) {
  const Corpus corpus =
      open_text("3:" + write("a.txt", std::string(40, 'a')) + " 1:" + write("b.txt", std::string(20, 'b')));
  const MixedTokens& training = corpus.split(Split::Train);
  const MixedTokens& validation = corpus.split(Split::Validation);
  EXPECT_THAT(training.mixture.shares(), ::testing::ElementsAre(7500, 2500));
  EXPECT_EQ(training.sources.at(0).size(), 38);
  EXPECT_EQ(text_of(validation.sources.at(0)), "aa");
  EXPECT_EQ(text_of(validation.sources.at(1)), "b");
}

TEST_F(CorpusTest, ReportsTheFormatOfItsFiles) {
  EXPECT_TRUE(open_text(write("a.txt", "text")).opened.is_plain_text);
  const Corpus corpus = open_text("1:" + path("a.txt") + " 1:" + write("b.bin", "tokens"));
  EXPECT_FALSE(corpus.opened.is_plain_text);
  EXPECT_EQ(corpus.opened.description,
            path("a.txt") + ": text, 4 tokens; " + path("b.bin") + ": raw 16-bit tokens, 3 tokens");
}

/// Files are inspected first; an invalid id elsewhere is found when it is read.
TEST_F(CorpusTest, RefusesIdsOutsideTheVocabularyBeforeTrainingBegins) {
  EXPECT_THAT(
      [&] { static_cast<void>(open_corpus({.data = write("a.bin", "tokens"), .tokens = {.vocabulary = 500}})); },
      is_refused("a.bin: token 0 is 28532; the model has the ids 0 to 499"));
}

TEST_F(CorpusTest, AWholeSourceKeepsNothingApart) {
  const WholeSource source = open_whole_source(write("a.txt", fmt::format("{:t>38}vv", "")), {});
  EXPECT_EQ(text_of(source.tokens), std::string(38, 't') + "vv");
  EXPECT_EQ(source.tokens.name(), path("a.txt"));
  EXPECT_TRUE(source.opened.is_plain_text);
  EXPECT_EQ(source.opened.description, path("a.txt") + ": text, 40 tokens");
}

TEST_F(CorpusTest, AWholeSourceIsNoMixture) {
  EXPECT_THAT([&] { static_cast<void>(open_whole_source("0.5:a 0.5:b", {})); },
              is_refused("0.5:a 0.5:b: is a mixture; give one file or folder"));
}

}  // namespace
}  // namespace chimera
