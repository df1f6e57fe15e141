#include "tokenizer/word_cache.h"

#include <algorithm>

namespace chimera {

bool WordCache::append_long(std::string_view word, TokenIds& ids) const {
  const auto found = long_.find(word);
  if (found == long_.end()) return false;
  ids.insert(ids.end(), found->second.begin(), found->second.end());
  return true;
}

void WordCache::insert(std::string_view word, std::span<const TokenId> ids) {
  if (word.size() <= kShort && ids.size() <= kFewIds) {
    const Key key = key_of(word);
    Slot& slot = slots_[slot_of(key, word.size())];
    slot = {key, {}, static_cast<std::uint16_t>(ids.size()), static_cast<std::uint16_t>(word.size())};
    std::copy(ids.begin(), ids.end(), slot.ids);
    return;
  }
  if (word.size() > kLongest) return;
  if (long_.size() >= kMostLong) long_.clear();
  long_.emplace(word, TokenIds(ids.begin(), ids.end()));
}

}  // namespace chimera
