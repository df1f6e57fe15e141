// Replays what the fuzzers kept, with any compiler.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/exercise.h"

namespace chimera::testing {
namespace {

void replay(const std::string& folder, void (*exercise)(std::string_view)) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CHIMERA_SOURCE_DIR "/tests/fuzz/corpus/" + folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_NO_THROW(exercise(text)) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 10) << "the corpus of " << folder << " is gone";
}

TEST(FuzzCorpusTest, Json) { replay("json", exercise_json); }
TEST(FuzzCorpusTest, Csv) { replay("csv", exercise_csv); }

}  // namespace
}  // namespace chimera::testing
