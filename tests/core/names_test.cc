
#include "core/choices.h"
#include "support/message_of.h"

#include <gtest/gtest.h>

#include <set>

namespace chimera {
namespace {

template <NamedEnum Enum>
void expect_words_to_read_back() {
  std::set<std::string> words;
  for (const auto& [value, word] : kNames<Enum>) {
    EXPECT_EQ(to_text(value), word);
    EXPECT_EQ(parse_named<Enum>("--flag", word), value) << word;
    EXPECT_TRUE(words.insert(word).second) << word << " stands twice";
  }
}

TEST(NamesTest, WordsReadBackAsTheirValues) {
  expect_words_to_read_back<DataType>();
  expect_words_to_read_back<OptimizerKind>();
  expect_words_to_read_back<ReductionOrder>();
  expect_words_to_read_back<TransportKind>();
  expect_words_to_read_back<DeviceKind>();
}

TEST(NamesTest, WordsAreListedInTheOrderOfTheTable) {
  EXPECT_EQ(names_of<DataType>(), (std::vector<std::string>{"float32", "float64", "bfloat16"}));
}

TEST(NamesTest, AnUnknownWordIsAnErrorThatNamesTheNearest) {
  EXPECT_FALSE(find_named<DataType>("float31"));
  EXPECT_EQ(testing::message_of([&] { (void)parse_named<DataType>("--dtype", "float31"); }, "accepted"),
            "unknown --dtype 'float31'; did you mean 'float32'?");
}

TEST(ChoicesTest, BytesFollowTheTypeAndMasterWeightsAreNeverNarrow) {
  EXPECT_EQ(bytes_of(DataType::Float32), 4);
  EXPECT_EQ(bytes_of(DataType::Float64), 8);
  EXPECT_EQ(bytes_of(DataType::BFloat16), 2);
  EXPECT_EQ(master_type(DataType::Float32), DataType::Float32);
  EXPECT_EQ(master_type(DataType::Float64), DataType::Float64);
  EXPECT_EQ(master_type(DataType::BFloat16), DataType::Float32);
}

}  // namespace
}  // namespace chimera
