#include "plan/stage_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/reject.h"

namespace chimera {
namespace {

[[noreturn]] void fail_to_parse(const StageFlag& flag, const std::string& text) {
  if (!text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0)
    throw ConfigError(unknown_name(flag.name, text, flag.rules));
  reject("{} {}: expected {}, or stages such as 0,1", flag.name, text, fmt::join(flag.rules, ", "));
}

constexpr const char* kCountsExpected =
    "{} {}: expected LEVEL:BLOCKS, joined by +, with each LEVEL ({}) once, and BLOCKS a number for every stage or one "
    "number for each, such as full:3,2,0,0{}";

[[noreturn]] void refuse_counts(const StageFlag& flag, const std::string& text) {
  reject(kCountsExpected, flag.name, text, flag.moves ? "full" : "cheap, attention, full",
         flag.moves ? "" : " or cheap:4+full:2");
}

/// Reads `cheap:4+full:2,1`.
StageChoice parse_counts(const StageFlag& flag, const std::string& text) {
  StageChoice choice{.rule = StageRule::Counted, .counts = {BlockLevels()}};
  std::set<RecomputeLevel> seen;
  const char* next = text.data();
  const char* const end = next + text.size();
  while (true) {
    const char* const colon = std::find(next, end, ':');
    const auto level = find_named<RecomputeLevel>(std::string(next, colon));
    const bool is_accepted = level && std::ranges::count(flag.rules, to_text(*level)) > 0;
    if (!is_accepted || level == RecomputeLevel::None || !seen.insert(*level).second) refuse_counts(flag, text);
    std::vector<std::int64_t> numbers;
    for (next = colon; next != end && *next != '+';) {
      std::int32_t number = 0;
      const auto [after, error] = std::from_chars(std::min(next + 1, end), end, number);
      if (error != std::errc() || number < 0 || (after != end && *after != ',' && *after != '+'))
        refuse_counts(flag, text);
      numbers.push_back(number);
      next = after;
    }
    auto& counts = choice.counts;
    if (counts.size() == 1) counts.resize(std::max<std::size_t>(numbers.size(), 1), counts.front());
    if (numbers.size() != 1 && numbers.size() != counts.size()) refuse_counts(flag, text);
    for (std::size_t s = 0; s < counts.size(); ++s) counts[s][*level] = numbers[numbers.size() == 1 ? 0 : s];
    if (next == end) return choice;
    ++next;
  }
}

/// Returns the numbers of blocks that a choice asks of stage `s`. One number for all is limited to the stage's blocks.
BlockLevels counts_of(const std::vector<StageLayers>& partition, std::size_t s, const StageChoice& choice,
                      const StageFlag& flag) {
  const auto& counts = choice.counts;
  const std::int64_t blocks = partition[s].blocks();
  if (choice.rule == StageRule::Cheap) return BlockLevels::at(RecomputeLevel::Cheap, blocks);
  if (choice.rule == StageRule::Attention) return BlockLevels::at(RecomputeLevel::Attention, blocks);
  if (counts.size() > 1 && counts.size() != partition.size())
    reject("{} {}: {} numbers for {} stages; give one for each stage, or one for all", flag.name, to_text(choice),
           counts.size(), partition.size());
  const BlockLevels asked = counts.empty() ? BlockLevels() : counts[counts.size() == 1 ? 0 : s];
  if (counts.size() > 1 && asked.all() > blocks)
    reject("{} {}: stage {} has {} blocks, fewer than {}", flag.name, to_text(choice), s, blocks, asked.all());
  BlockLevels levels;
  for (const RecomputeLevel level : {RecomputeLevel::Full, RecomputeLevel::Attention, RecomputeLevel::Cheap})
    levels[level] = std::min(asked[level], blocks - levels.all());
  return levels;
}

}  // namespace

StageChoice parse_stages(const StageFlag& flag, const std::string& text) {
  if (std::ranges::count(flag.rules, text) > 0) return {.rule = *find_named<StageRule>(text)};
  if (text.find(':') != std::string::npos) return parse_counts(flag, text);
  StageChoice choice{.rule = StageRule::Listed};
  const char* const end = text.data() + text.size();
  for (const char* next = text.data();; ++next) {
    std::int32_t stage = 0;
    const auto [after, error] = std::from_chars(next, end, stage);
    // Also rejects an empty number, as in "0,,1" and "0,".
    if (error != std::errc() || (after != end && *after != ',') || stage < 0) fail_to_parse(flag, text);
    choice.stages.emplace(stage);
    if (after == end) return choice;
    next = after;
  }
}

std::string to_text(const StageChoice& choice) {
  std::string text;
  if (choice.rule == StageRule::Counted) {
    for (const RecomputeLevel level : kRecomputeLevels) {
      std::vector<std::int64_t> numbers;
      for (const BlockLevels& levels : choice.counts) numbers.push_back(levels[level]);
      if (std::ranges::max(numbers) == 0) continue;
      text += fmt::format("{}{}:{}", text.empty() ? "" : "+", to_text(level), fmt::join(numbers, ","));
    }
    return text.empty() ? to_text(StageRule::None) : text;
  }
  if (choice.rule != StageRule::Listed) return to_text(choice.rule);
  for (const StageId stage : choice.stages) text += fmt::format("{}{}", text.empty() ? "" : ",", stage.value());
  return text;
}

StageChoice stage_choice(const std::set<StageId>& stages, std::int64_t num_stages) {
  if (stages.empty()) return {.rule = StageRule::None};
  if (static_cast<std::int64_t>(stages.size()) == num_stages) return {.rule = StageRule::Full};
  return {.rule = StageRule::Listed, .stages = stages};
}

void set_levels(std::vector<StageLayers>& partition, const StageChoice& choice) {
  for (std::size_t s = 0; s < partition.size(); ++s)
    partition[s].levels = counts_of(partition, s, choice, kRecomputeFlag);
}

void set_on_device(std::vector<StageLayers>& partition, const StageChoice& offload) {
  for (std::size_t s = 0; s < partition.size(); ++s) {
    const bool is_counted = offload.rule == StageRule::Counted;
    partition[s].on_device =
        is_counted ? partition[s].blocks() - counts_of(partition, s, offload, kOffloadFlag).all() : 0;
  }
}

std::set<StageId> all_stages(std::int64_t count) {
  std::set<StageId> stages;
  for (std::int64_t s = 0; s < count; ++s) stages.emplace(s);
  return stages;
}

std::set<StageId> resolve_stages(const StageChoice& choice, const StageFlag& flag, std::int64_t num_stages,
                                 const std::function<std::set<StageId>()>& automatic) {
  const bool exists = choice.rule == StageRule::Listed    ? choice.stages.rbegin()->value() < num_stages
                      : choice.rule == StageRule::Counted ? true
                                                          : std::ranges::count(flag.rules, to_text(choice.rule)) > 0;
  if (!exists)
    reject("{} {}: expected {}, or stages of 0 to {} such as 0,1", flag.name, to_text(choice),
           fmt::join(flag.rules, ", "), num_stages - 1);
  switch (choice.rule) {
    case StageRule::None:
    case StageRule::Cheap:
    case StageRule::Attention: return {};
    case StageRule::Counted: {
      std::set<StageId> stages = flag.moves ? all_stages(num_stages) : std::set<StageId>();
      std::erase_if(stages, [&](StageId stage) {
        const std::size_t s = choice.counts.size() == 1 ? 0 : stage.index();
        return s < choice.counts.size() && choice.counts[s].all() == 0;
      });
      return stages;
    }
    case StageRule::Full: return all_stages(num_stages);
    case StageRule::Auto: return automatic();
    case StageRule::Listed: return choice.stages;
  }
  return {};
}

}  // namespace chimera
