#include "training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "core/json.h"
#include "core/random.h"

namespace chimera::testing {

Words small_training(const Scratch& scratch, const std::string& metrics) {
  const std::string text = scratch.write("text.txt", sample_text());
  const std::string file = scratch.path(metrics);
  return split(
      "train --data {} --schedule chimera --micro-batch-size 2 --sequence 32 --dtype float64 --overwrite --metrics {}",
      text, file);
}

std::string refusal_of_training(const Words& flags) {
  const Scratch scratch;
  const ProgramResult result = run_program(small_training(scratch) + flags);
  EXPECT_EQ(result.exit_code, 2);
  return result.messages;
}

std::string sample_text() {
  constexpr std::uint64_t kWords = 1500;
  const CounterRandom random(7, "sample text");
  std::string text;
  for (std::uint64_t word = 0; word < kWords; ++word) {
    const auto length = 1 + random.below(16 * word, 8);
    for (std::uint64_t i = 1; i <= length; ++i)
      text += static_cast<char>('a' + static_cast<int>(random.below(16 * word + i, 26)));
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

std::vector<nlohmann::json> numbers_in(const Scratch& scratch, const char* other) {
  std::vector<nlohmann::json> numbers;
  for (auto line : read_metrics(scratch.path("metrics.jsonl"))) {
    for (const char* name : {"time", "step_seconds", "tokens_per_second", "peak_memory_bytes", "used_memory_bytes",
                             "allocation_retries", "eta_seconds", "op_sum_seconds", other})
      line.erase(name);
    numbers.push_back(std::move(line));
  }
  return numbers;
}

Hashes hashes_in(const Scratch& scratch, const std::string& metrics) {
  Hashes hashes;
  for (const auto& line : read_metrics(scratch.path(metrics)))
    hashes.emplace_back(line.at("step"), line.at("parameters_hash"));
  return hashes;
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
