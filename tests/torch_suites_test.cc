// CTest runs chimera_torch_tests suite by suite; this test makes sure that none is forgotten.

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

namespace chimera {
namespace {

std::set<std::string> registered_suites() {
  std::ifstream file(CHIMERA_SOURCE_DIR "/tests/torch_suites.cmake");
  std::set<std::string> words;
  for (std::string word; file >> word;) words.insert(word);
  return words;
}

TEST(TorchSuitesTest, EverySuiteIsRegistered) {
  const auto registered = registered_suites();
  const auto* tests = ::testing::UnitTest::GetInstance();
  for (int i = 0; i < tests->total_test_suite_count(); ++i) {
    const std::string name = tests->GetTestSuite(i)->name();  // instantiations are called PREFIX/SUITE
    EXPECT_TRUE(registered.contains(name.substr(name.find('/') + 1)))
        << name << " is missing in tests/torch_suites.cmake";
  }
}

}  // namespace
}  // namespace chimera
