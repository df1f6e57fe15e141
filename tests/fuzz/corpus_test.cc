// Replays the inputs kept by the fuzzers, with any compiler.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "fuzz/fuzzer.h"
#include "support/paths.h"

namespace chimera::testing {
namespace {

const std::filesystem::path kCorpus = testing::source_path("/tests/fuzz/corpus");

TEST(FuzzCorpusTest, EveryReaderHasExactlyOneCorpus) {
  std::set<std::string> folders, readers;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) folders.insert(entry.path().filename());
  for (const Fuzzer& fuzzer : all_fuzzers()) readers.insert(fuzzer.name);
  EXPECT_EQ(folders, readers);
}

class FuzzReplayTest : public ::testing::TestWithParam<Fuzzer> {};

TEST_P(FuzzReplayTest, PropertiesHoldForTheCorpus) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus / GetParam().name)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    EXPECT_NO_THROW(GetParam().exercise(bytes)) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 4) << "the corpus of " << GetParam().name << " is gone";
}

INSTANTIATE_TEST_SUITE_P(, FuzzReplayTest, ::testing::ValuesIn(all_fuzzers()),
                         [](const auto& fuzzer) { return fuzzer.param.name; });

}  // namespace
}  // namespace chimera::testing
