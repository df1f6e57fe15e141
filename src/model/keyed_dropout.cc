#include "model/keyed_dropout.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

constexpr std::int64_t kSites = 4;           // that model/dropout.h tells apart in a layer
constexpr std::int64_t kMostInALayer = 256;  // KeyedDropouts
thread_local DropoutScope* current = nullptr;

}  // namespace

DropoutScope::DropoutScope(const Dropout& masks, std::int64_t layer)
    : masks_(masks.in_layer(layer * (kMostInALayer / kSites))), before_(std::exchange(current, this)) {}

DropoutScope::~DropoutScope() { current = before_; }

KeyedDropoutImpl::KeyedDropoutImpl(double probability) : probability_(probability) {
  if (!(probability >= 0 && probability < 1)) {
    throw ConfigError(fmt::format("KeyedDropout: the probability must be at least 0 and below 1, not {}", probability));
  }
}

at::Tensor KeyedDropoutImpl::forward(const at::Tensor& input) {
  if (!is_training()) return input;
  if (current == nullptr) throw Error("KeyedDropout has no sample to take its mask for: only stages run it, or eval()");
  const std::int64_t place = current->next_++;
  if (place == kMostInALayer) {
    throw ConfigError(fmt::format("a layer has more than {} KeyedDropouts; cut it into several", kMostInALayer));
  }
  Dropout masks = current->masks_.in_layer(current->masks_.layer + place / kSites);
  masks.probability = probability_;
  return dropout(input, masks, static_cast<DropoutSite>(place % kSites));
}

}  // namespace chimera
