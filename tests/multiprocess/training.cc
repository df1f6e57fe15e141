#include "training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "core/json.h"
#include "core/random.h"

namespace chimera::testing {

Arguments operator+(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Arguments small_training(const Scratch& scratch, const std::string& metrics) {
  return {"train",
          "--data",
          scratch.write("text.txt", sample_text()),
          "--schedule",
          "chimera",
          "--micro-batch-size",
          "2",
          "--sequence",
          "32",
          "--dtype",
          "float64",
          "--overwrite",
          "--metrics",
          scratch.path(metrics)};
}

std::string sample_text() {
  constexpr std::uint64_t kWords = 1500;
  const CounterRandom random(7, "sample text");
  std::string text;
  for (std::uint64_t word = 0; word < kWords; ++word) {
    const auto length = 1 + random.below(16 * word, 8);
    for (std::uint64_t i = 1; i <= length; ++i) {
      text += static_cast<char>('a' + static_cast<int>(random.below(16 * word + i, 26)));
    }
    text += word % 9 == 8 ? ".\n" : " ";
  }
  return text;
}

std::vector<nlohmann::json> read_metrics(const std::string& path) {
  const std::string text = read_file(path);
  EXPECT_TRUE(text.empty() || text.back() == '\n') << "the last line is cut: " << text;
  std::vector<nlohmann::json> steps;
  for (const std::string& line : lines_of(text)) {
    steps.push_back(try_json(line));
    EXPECT_TRUE(steps.back().is_object()) << line;
  }
  return steps;
}

std::vector<nlohmann::json> numbers_in(const Scratch& scratch) {
  std::vector<nlohmann::json> numbers;
  for (auto line : read_metrics(scratch.path("metrics.jsonl"))) {
    for (const char* name : {"time", "step_seconds", "tokens_per_second", "peak_memory_bytes", "used_memory_bytes",
                             "allocation_retries", "eta_seconds", "op_sum_seconds"})
      line.erase(name);
    numbers.push_back(std::move(line));
  }
  return numbers;
}

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

std::vector<std::string> complaints(const ProgramResult& result) {
  std::vector<std::string> lines = lines_of(result.messages);
  std::erase_if(lines, [](const std::string& line) {
    constexpr std::array kAdvice = {
        "step ", "  last: ", "  newest checkpoint: ", "  continue: ", "  start again: ", "  why: "};
    return std::ranges::any_of(kAdvice, [&](const char* words) { return line.starts_with(words); });
  });
  return lines;
}

}  // namespace chimera::testing
