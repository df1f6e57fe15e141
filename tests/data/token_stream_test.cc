#include "data/token_stream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "core/error.h"
#include "megatron.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Scratch;
using ::testing::ThrowsMessage;

/// Three files of ten tokens, 0 to 29.
TokenStream thirty() {
  std::vector<TokenFile> files;
  for (std::int32_t first = 0; first < 30; first += 10) {
    std::vector<std::int32_t> tokens(10);
    for (std::int32_t i = 0; i < 10; ++i) tokens[static_cast<std::size_t>(i)] = first + i;
    files.push_back(tokens_in_memory(tokens, "file " + std::to_string(first / 10), 100));
  }
  return TokenStream(std::move(files));
}

std::vector<std::int64_t> read(const TokenStream& stream, std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
  stream.read(first, tokens);
  return tokens;
}

TEST(TokenStreamTest, FilesFollowEachOther) {
  const TokenStream stream = thirty();
  for (std::int64_t first = 0; first <= 30; ++first) {
    for (std::int64_t count = 0; first + count <= 30; ++count) {
      const auto tokens = read(stream, first, count);
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(tokens[static_cast<std::size_t>(i)], first + i);
    }
  }
}

TEST(TokenStreamTest, ADocumentEndsWithItsFile) {
  EXPECT_THAT(thirty().document_starts(0, 30), ElementsAre(10, 20));
  EXPECT_THAT(thirty().document_starts(9, 3), ElementsAre(1));
  EXPECT_THAT(thirty().document_starts(10, 10), ElementsAre());
}

TEST(TokenStreamTest, NothingIsReadBeyondTheEnd) {
  const TokenStream stream = thirty();
  EXPECT_THROW(read(stream, 0, 31), std::out_of_range);
  EXPECT_THROW(read(stream, 30, 1), std::out_of_range);
  EXPECT_THROW(read(stream, -1, 1), std::out_of_range);
  EXPECT_THROW(read(stream, INT64_MAX, 1), std::out_of_range);
  EXPECT_THROW(static_cast<void>(stream.document_starts(29, 2)), std::out_of_range);
  EXPECT_THROW(static_cast<void>(stream.document_starts(0, -1)), std::out_of_range);
}

TEST(TokenStreamTest, AViewEndsBeforeItsStreamDoes) {
  const TokenView view(std::make_shared<const TokenStream>(thirty()), 5, 10, "part");
  EXPECT_THAT(view.read(0, 3), ElementsAre(5, 6, 7));
  EXPECT_THAT(view.document_starts(0, 10), ElementsAre(5));
  EXPECT_THROW(static_cast<void>(view.read(0, 11)), std::out_of_range);
  EXPECT_THROW(static_cast<void>(view.read(-1, 1)), std::out_of_range);
}

TEST(TokenFileTest, RefusesIdsOutsideTheVocabulary) {
  const std::vector<std::int32_t> tokens = {3, 7, -1};
  const TokenFile file = tokens_in_memory(tokens, "a.bin", 7);
  std::vector<std::int64_t> two(2);
  EXPECT_THAT([&] { file.read(0, two); },
              ThrowsMessage<ConfigError>(HasSubstr("a.bin: token 1 is 7; the model has the ids 0 to 6")));
  EXPECT_THAT([&] { file.read(1, two); }, ThrowsMessage<ConfigError>(HasSubstr("a.bin: token 1 is 7")));
  std::vector<std::int64_t> one(1);
  EXPECT_THAT([&] { file.read(2, one); }, ThrowsMessage<ConfigError>(HasSubstr("a.bin: token 2 is -1")));
  EXPECT_NO_THROW(file.read(0, one));
}

/// With mmap, SIGBUS would kill the process.
TEST(TokenFileTest, AFileThatShrinksIsAnError) {
  const Scratch scratch;
  const std::string path = scratch.write("a.bin", std::string(100'000, 'a'));
  const TokenFile file(DataFile(path), {.count = 100'000});
  std::vector<std::int64_t> last(1000);
  file.read(99'000, last);
  std::filesystem::resize_file(path, 99'500);
  EXPECT_THAT([&] { file.read(99'000, last); },
              ThrowsMessage<Error>(AllOf(
                  HasSubstr(path + " has shrunk: it had 100000 bytes when the run started and ends at byte 99500 now"),
                  Not(HasSubstr("\n")))));
}

}  // namespace
}  // namespace chimera
