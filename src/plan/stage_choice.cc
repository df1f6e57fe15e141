#include "plan/stage_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "core/mapped.h"
#include "core/reject.h"
#include "core/value_text.h"

namespace chimera {
namespace {

[[noreturn]] void refuse_counts(const StageFlag& flag, const std::string& text) {
  reject(
      "{} {}: expected LEVEL:BLOCKS, joined by +, with each LEVEL ({}) once, and BLOCKS a number for every stage or "
      "one number for each, such as full:3,2,0,0",
      flag.name, text, flag.moves ? "full" : "cheap, attention, full");
}

/// Reads `cheap:4+full:2,1`.
StageChoice parse_counts(const StageFlag& flag, const std::string& text) {
  StageChoice choice{.rule = StageRule::Counted, .counts = {BlockLevels()}};
  std::set<RecomputeLevel> seen;
  for (const std::string_view part : split_at('+', text)) {
    const auto colon = std::min(part.find(':'), part.size());
    const auto level = find_named<RecomputeLevel>(part.substr(0, colon));
    const bool is_accepted = level && std::ranges::count(flag.rules, to_text(*level)) > 0;
    if (!is_accepted || level == RecomputeLevel::None || !seen.insert(*level).second) refuse_counts(flag, text);
    const auto numbers = parse_small_numbers(part.substr(std::min(colon + 1, part.size())));
    if (!numbers || std::ranges::min(*numbers) < 0) refuse_counts(flag, text);
    auto& counts = choice.counts;
    if (counts.size() == 1) counts.resize(numbers->size(), counts.front());
    if (numbers->size() != 1 && numbers->size() != counts.size()) refuse_counts(flag, text);
    for (std::size_t s = 0; s < counts.size(); ++s) counts[s][*level] = (*numbers)[numbers->size() == 1 ? 0 : s];
  }
  return choice;
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
  if (const auto stages = parse_small_numbers(text); stages && std::ranges::min(*stages) >= 0) {
    StageChoice choice{.rule = StageRule::Listed};
    for (const std::int64_t stage : *stages) choice.stages.emplace(stage);
    return choice;
  }
  if (!text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0)
    throw ConfigError(unknown_name(flag.name, text, flag.rules));
  reject("{} {}: expected {}, or stages such as 0,1", flag.name, text, fmt::join(flag.rules, ", "));
}

std::string to_text(const StageChoice& choice) {
  if (choice.rule == StageRule::Counted) {
    std::string text;
    for (const RecomputeLevel level : kRecomputeLevels) {
      std::vector<std::int64_t> numbers;
      for (const BlockLevels& levels : choice.counts) numbers.push_back(levels[level]);
      if (std::ranges::max(numbers) == 0) continue;
      text += fmt::format("{}{}:{}", text.empty() ? "" : "+", to_text(level), fmt::join(numbers, ","));
    }
    return text.empty() ? to_text(StageRule::None) : text;
  }
  if (choice.rule != StageRule::Listed) return to_text(choice.rule);
  return fmt::format("{}", fmt::join(numbers_of_ids(choice.stages), ","));
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
