#include "engine/weight_decay.h"

#include <algorithm>

namespace chimera {
namespace {

/// Whether `part` is one of the parts that dots separate.
bool has_part(std::string_view name, std::string_view part) {
  while (true) {
    const auto dot = std::min(name.find('.'), name.size());
    if (name.substr(0, dot) == part) return true;
    if (dot == name.size()) return false;
    name.remove_prefix(dot + 1);
  }
}

}  // namespace

bool is_embedding(std::string_view name, std::int64_t dimensions) {
  const bool named = name.find("embed") != std::string_view::npos || has_part(name, "wte") || has_part(name, "wpe");
  return named && dimensions >= 2;
}

bool decays(DecayedWeights decayed, std::string_view name, std::int64_t dimensions) {
  switch (decayed) {
    case DecayedWeights::Matrices: return dimensions >= 2;
    case DecayedWeights::NoEmbeddings: return dimensions >= 2 && !is_embedding(name, dimensions);
    case DecayedWeights::All: return true;
  }
  return true;
}

}  // namespace chimera
