#include "data/tokens.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A directory that goes with the test.
class CorpusTest : public ::testing::Test {
 protected:
  CorpusTest() {
    std::string name = (std::filesystem::temp_directory_path() / "corpus_test_XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~CorpusTest() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (directory_ / name).string(); }
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }

  std::filesystem::path directory_;
};

std::string text_of(const TokenView& tokens) {
  std::string text;
  for (std::int64_t i = 0; i < tokens.size(); ++i) text += static_cast<char>(tokens[i]);
  return text;
}

void expect_refused(const std::string& path, const std::string& reason) {
  EXPECT_THAT(
      [&] { static_cast<void>(open_corpus(path)); },
      ::testing::ThrowsMessage<ConfigError>(AllOf(HasSubstr(path + ": " + reason), ::testing::Not(HasSubstr("\n")))));
}

TEST_F(CorpusTest, TokensAreTheBytesOfTheText) {
  const Corpus corpus = open_corpus(write("a.txt", "h\xC3\xA9!"));
  const TokenView tokens = corpus.split(Split::Train);
  ASSERT_EQ(tokens.size(), 4);
  EXPECT_EQ(tokens[0], 'h');
  EXPECT_EQ(tokens[1], 0xC3);
  EXPECT_EQ(tokens[2], 0xA9);
  EXPECT_EQ(corpus.tokenizer().vocabulary_size(), 256);
  EXPECT_EQ(corpus.tokenizer().name(), "bytes");
}

TEST_F(CorpusTest, TheLastTwentiethIsForValidation) {
  const Corpus corpus = open_corpus(write("a.txt", fmt::format("{:t>38}vv", "")));
  EXPECT_EQ(text_of(corpus.split(Split::Train)), std::string(38, 't'));
  EXPECT_EQ(text_of(corpus.split(Split::Validation)), "vv");
  EXPECT_EQ(corpus.split(Split::Train).name(), path("a.txt") + " (training)");
  EXPECT_EQ(corpus.split(Split::Validation).name(), path("a.txt") + " (validation)");
}

TEST_F(CorpusTest, AShortTextHasNothingForValidation) {
  const Corpus corpus = open_corpus(write("a.txt", "short"));
  EXPECT_EQ(corpus.split(Split::Train).size(), 5);
  EXPECT_EQ(corpus.split(Split::Validation).size(), 0);
}

TEST_F(CorpusTest, KeepsItsTokensWhenMoved) {
  Corpus corpus = open_corpus(write("a.txt", "text"));
  const Corpus moved = std::move(corpus);
  EXPECT_EQ(text_of(moved.split(Split::Train)), "text");
}

TEST_F(CorpusTest, RefusesWhatIsNotAText) {
  expect_refused(path("missing.txt"), "No such file or directory");
  expect_refused(write("a.txt", "text") + "/b.txt", "Not a directory");
  expect_refused(directory_.string(), "it is a directory");
  expect_refused(write("empty.txt", ""), "it is empty");
  expect_refused("/dev/null", "it is not a regular file");
}

TEST_F(CorpusTest, RefusesAPipeWithoutWaitingForItsWriter) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_refused(path("pipe"), "it is not a regular file");
}

TEST_F(CorpusTest, RefusesAnUnreadableFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const std::string file = write("secret.txt", "text");
  std::filesystem::permissions(file, std::filesystem::perms::none);
  expect_refused(file, "Permission denied");
}

}  // namespace
}  // namespace chimera
