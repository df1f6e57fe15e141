// Only generate/ contains the names of schedules.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "support/paths.h"

namespace chimera {
namespace {

struct Literal {
  std::string place;
  std::string text;
};

/// String literals of a source file without its comments.
std::vector<Literal> literals_of(const std::filesystem::path& file) {
  const std::regex literal(R"re("((?:[^"\\]|\\.)*)")re");
  std::vector<Literal> found;
  std::ifstream lines(file);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = line.substr(0, line.find("//"));
    for (std::sregex_iterator match(line.begin(), line.end(), literal), end; match != end; ++match)
      found.push_back({file.string() + ":" + std::to_string(number), (*match)[1]});
  }
  return found;
}

/// Sources of all rooms except generate/, and of the subcommands.
std::vector<std::filesystem::path> sources_outside() {
  std::vector<std::filesystem::path> found;
  for (const char* folder : {"src", "apps"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(testing::source_path("")) / folder)) {
      const auto extension = entry.path().extension();
      if ((extension != ".h" && extension != ".cc") || entry.path().parent_path().filename() == "generate") continue;
      found.push_back(entry.path());
    }
  }
  return found;
}

std::vector<Literal> literals_outside() {
  std::vector<Literal> found;
  for (const auto& source : sources_outside()) {
    for (const Literal& literal : literals_of(source)) found.push_back(literal);
  }
  return found;
}

/// Whether a text is part of an example for users: a command, or a demo.
bool is_example(const std::string& place, const std::string& text) {
  return text.starts_with("  chimera ") || text.find("`chimera schedule ") != text.npos ||
         place.find("apps/demo.cc") != std::string::npos;
}

/// The program has the name of a schedule. In these files the name means the program.
bool is_the_program(const std::string& place) {
  return std::ranges::any_of(
      std::array{"apps/completion.cc", "apps/program.cc", "apps/reference.cc", "core/shared_memory.cc"},
      [&](const char* file) { return place.find(file) != std::string::npos; });
}

TEST(ScheduleNamesTest, AppearOnlyInGenerate) {
  const auto listed = schedule_names();
  const std::set<std::string> names(listed.begin(), listed.end());
  const auto literals = literals_outside();
  EXPECT_GT(literals.size(), 1000U) << "the reader of literals found next to nothing";
  const std::regex word("[a-z0-9-]+");
  for (const auto& [place, text] : literals) {
    if (is_example(place, text)) continue;
    for (std::sregex_iterator match(text.begin(), text.end(), word), end; match != end; ++match) {
      const std::string said = match->str();
      const bool program = said == "chimera" && (text != said || is_the_program(place));
      EXPECT_FALSE(names.contains(said) && !program) << place << " says " << said << ": \"" << text << '"';
    }
  }
}

/// Sources that may look a generator up: they have a name from the user, or a candidate of a plan.
bool takes_a_name(const std::filesystem::path& file) {
  const std::array places = {"answers/plan_answer.cc",
                             "answers/plan_request.cc",
                             "answers/playground.cc",
                             "answers/schedule_request.cc",
                             "answers/shape_request.cc",
                             "answers/sweep_answer.cc",
                             "apps/plan.cc",
                             "apps/train.cc",
                             "engine/run_shape.cc",
                             "plan/candidate.cc",
                             "plan/enumerate.cc",
                             "plan/equation_one.cc",
                             "plan/plan.cc",
                             "plan/predict.cc",
                             "plan/train_flags.cc",
                             "profile/measure_overheads.cc",
                             "search/layout.cc",
                             "setup/choose_schedule.cc"};
  return std::ranges::any_of(places, [&](const char* place) { return file.string().ends_with(place); });
}

TEST(ScheduleNamesTest, NoScheduleIsLookedUpByItsName) {
  const std::regex lookup(R"re(find_generator\(|Generator::name\b)re");
  // `choice` and the options of a run have a name from the user, not a schedule.
  const std::regex of_a_schedule(R"re(find_generator\((?!(choice|options\.schedule)\.name\))[^)]*[.>]name\b)re");
  int lookups = 0;
  for (const auto& source : sources_outside()) {
    std::ifstream lines(source);
    for (std::string line; std::getline(lines, line);) {
      if (!std::regex_search(line, lookup)) continue;
      ++lookups;
      EXPECT_TRUE(takes_a_name(source)) << source << ": " << line;
      EXPECT_FALSE(std::regex_search(line, of_a_schedule)) << source << ": " << line;
    }
  }
  EXPECT_GT(lookups, 15) << "found almost no lookups";
}

/// Code that includes a schedule's header could call it without naming it.
TEST(ScheduleNamesTest, TheirHeadersAreIncludedOnlyInGenerate) {
  const std::set<std::string> open = {"detours.h", "generator.h", "list_orders.h", "registry.h", "shape.h"};
  const std::regex include(R"re(#include "generate/([^"]*)")re");
  int includes = 0;
  for (const auto& source : sources_outside()) {
    std::ifstream lines(source);
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      ++includes;
      EXPECT_TRUE(open.contains(match[1])) << source << ": " << line;
    }
  }
  EXPECT_GT(includes, 20) << "the reader of includes found next to nothing";
}

}  // namespace
}  // namespace chimera
