#include "data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "core/error.h"
#include "megatron.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Scratch;

/// Expects an error about the index, in one line, after `change` to the files.
void expect_refused(const std::function<void(MegatronFiles&)>& change, const std::string& message) {
  const Scratch scratch;
  MegatronFiles files;
  change(files);
  const std::string path = scratch.write("a.idx", files.index());
  EXPECT_THAT(
      [&] { MegatronIndex(DataFile(path), files.token_bytes); },
      ::testing::ThrowsMessage<ConfigError>(AllOf(HasSubstr(path + ": "), HasSubstr(message), Not(HasSubstr("\n")))));
}

TEST(MegatronIndexTest, KnowsWhereDocumentsBegin) {
  const Scratch scratch;
  const MegatronIndex index(DataFile(scratch.write("a.idx", MegatronFiles().index())), 12);
  EXPECT_EQ(index.type(), TokenType::U16);
  EXPECT_EQ(index.documents(), 2);
  EXPECT_EQ(index.document_start(0), 0);
  EXPECT_EQ(index.document_start(1), 2);
  EXPECT_EQ(index.document_start(2), 6);
  EXPECT_EQ(index.document_of(0), 0);
  EXPECT_EQ(index.document_of(1), 0);
  EXPECT_EQ(index.document_of(2), 1);
  EXPECT_EQ(index.document_of(5), 1);
}

RC_GTEST_PROP(MegatronIndexTest, FindsTheDocumentOfEveryToken, ()) {
  MegatronFiles files;
  files.lengths = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::int32_t>>(rc::gen::inRange(1, 9)));
  files.pointers.clear();
  files.documents = {0};
  std::vector<std::int64_t> document_of;  // [token]
  for (const std::int32_t length : files.lengths) {
    files.pointers.push_back(static_cast<std::int64_t>(document_of.size()) * 2);
    document_of.insert(document_of.end(), static_cast<std::size_t>(length), files.documents.back());
    files.documents.push_back(files.documents.back() + 1);
  }
  files.header.sequences = files.lengths.size();
  files.header.documents = files.documents.size();
  const Scratch scratch;
  const MegatronIndex index(DataFile(scratch.write("a.idx", files.index())),
                            static_cast<std::int64_t>(document_of.size()) * 2);
  for (std::size_t i = 0; i < document_of.size(); ++i)
    RC_ASSERT(index.document_of(static_cast<std::int64_t>(i)) == document_of[i]);
}

TEST(MegatronIndexTest, RefusesAWrongHeader) {
  expect_refused([](auto& files) { files.header.magic[0] = 'X'; },
                 "does not begin with MMIDIDX, as a Megatron index does");
  expect_refused([](auto& files) { files.header.version = 2; }, "is of version 2; expected 1");
  for (const int code : {0, 6, 7, 9, 255}) {
    expect_refused([&](auto& files) { files.header.type_code = static_cast<std::uint8_t>(code); },
                   "gives its tokens the type " + std::to_string(code) + "; expected 1 to 5 or 8");
  }
}

TEST(MegatronIndexTest, RefusesCountsThatTheFileDoesNotHave) {
  expect_refused([](auto& files) { files.header.sequences = 4; },
                 "has 94 bytes, which does not match 4 sequences and 3 document ent");
  expect_refused([](auto& files) { files.header.documents = 2; },
                 "has 94 bytes, which does not match 3 sequences and 2 document ent");
  expect_refused([](auto& files) { files.header.sequences = UINT64_MAX; },
                 "which does not match 18446744073709551615 sequences");
  expect_refused([](auto& files) { files.header.documents = std::uint64_t{1} << 61; }, "2305843009213693952 document");
  expect_refused([](auto& files) { files.documents.pop_back(); }, "has 86 bytes");
  expect_refused(
      [](auto& files) { files = {.header = {.type_code = 8}, .lengths = {}, .pointers = {}, .documents = {}}; },
      "has no documents");
}

TEST(MegatronIndexTest, RefusesAFileShorterThanAHeader) {
  const Scratch scratch;
  const std::string path = scratch.write("a.idx", MegatronFiles().index().substr(0, 33));
  EXPECT_THAT([&] { MegatronIndex(DataFile(path), 12); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("has 33 bytes; the header of an index takes 34")));
}

TEST(MegatronIndexTest, RefusesModes) {
  const Scratch scratch;
  const std::string path = scratch.write("a.idx", MegatronFiles().index() + std::string(3, '\0'));
  EXPECT_THAT([&] { MegatronIndex(DataFile(path), 12); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("has a mode for each sequence")));
}

TEST(MegatronIndexTest, RefusesSequencesThatDoNotFollowEachOther) {
  const auto pointer = [](std::int64_t value) { return [=](auto& files) { files.pointers[1] = value; }; };
  expect_refused(pointer(2), "sequence 1 begins at byte 2 of the tokens; expected byte 4");
  expect_refused(pointer(6), "sequence 1 begins at byte 6 of the tokens; expected byte 4");
  expect_refused(pointer(-4), "sequence 1 begins at byte -4 of the tokens; expected byte 4");
  expect_refused(pointer(12), "sequence 1 begins at byte 12 of the tokens; expected byte 4");
  expect_refused(pointer(INT64_MAX), "of the tokens; expected byte 4");
}

TEST(MegatronIndexTest, RefusesLengthsThatTheTokensDoNotHave) {
  const auto last = [](std::int32_t value) { return [=](auto& files) { files.lengths[2] = value; }; };
  expect_refused(last(0), "sequence 2 has 0 tokens; expected at least 1");
  expect_refused(last(-1), "sequence 2 has -1 tokens; expected at least 1");
  expect_refused(last(2), "sequence 2 has 2 tokens from byte 10 on, but the tokens end at byte 12");
  expect_refused(last(INT32_MAX), "but the tokens end at byte 12");
  expect_refused([](auto& files) { files.token_bytes = 14; },
                 "its sequences end at byte 12 of the tokens, which have 14");
  expect_refused([](auto& files) { files.token_bytes = 11; }, "but the tokens end at byte 11");
}

TEST(MegatronIndexTest, RefusesDocumentsThatDoNotFollowEachOther) {
  const auto documents = [](std::vector<std::int64_t> values) {
    return [=](auto& files) { files.documents = values; };
  };
  expect_refused(documents({1, 2, 3}), "document 0 begins with sequence 1; expected sequence 0");
  expect_refused(documents({0, 0, 3}), "document 0 has the sequences from 0 to before 0; expected at least one of 3");
  expect_refused(documents({0, 3, 2}), "document 1 has the sequences from 3 to before 2");
  expect_refused(documents({0, 1, 2}), "its documents end with sequence 1; expected the last of 3");
  expect_refused(documents({0, 4, 3}), "document 0 has the sequences from 0 to before 4");
  expect_refused(documents({0, -1, 3}), "document 0 has the sequences from 0 to before -1");
}

TEST(MegatronIndexTest, NoticesAChangeAfterTheCheck) {
  const Scratch scratch;
  const MegatronIndex index(DataFile(scratch.write("a.idx", MegatronFiles().index())), 12);
  MegatronFiles other;
  other.documents[1] = 77;
  static_cast<void>(scratch.write("a.idx", other.index()));
  EXPECT_THAT([&] { static_cast<void>(index.document_start(1)); },
              ::testing::ThrowsMessage<Error>(HasSubstr("a.idx has changed since the run began")));
}

}  // namespace
}  // namespace chimera
