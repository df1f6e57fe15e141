#include "core/random.h"

#define XXH_INLINE_ALL  // header-only: one hash, no library to link
#include <xxhash.h>

#include <Random123/philox.h>

#include <array>
#include <cmath>
#include <numbers>

namespace chimera {
namespace {

std::array<std::uint64_t, 2> block(std::uint64_t key, std::uint64_t stream, std::uint64_t index) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32U); };
  const r123::Philox4x32::ctr_type counter = {{low(index), high(index), low(stream), high(stream)}};
  const r123::Philox4x32::key_type philox_key = {{low(key), high(key)}};
  const auto out = r123::Philox4x32{}(counter, philox_key);
  return {(std::uint64_t{out[1]} << 32U) | out[0], (std::uint64_t{out[3]} << 32U) | out[2]};
}

double to_unit(std::uint64_t bits) { return static_cast<double>(bits >> 11U) * 0x1.0p-53; }

}  // namespace

CounterRandom::CounterRandom(std::uint64_t seed, std::string_view name)
    : key_(seed), stream_(XXH3_64bits(name.data(), name.size())) {}

std::uint64_t CounterRandom::bits(std::uint64_t index) const { return block(key_, stream_, index)[0]; }

double CounterRandom::uniform(std::uint64_t index) const { return to_unit(bits(index)); }

std::uint64_t CounterRandom::below(std::uint64_t index, std::uint64_t bound) const {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits(index)) * bound) >> 64U);
}

double CounterRandom::normal(std::uint64_t index) const {
  const auto words = block(key_, stream_, index);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - to_unit(words[0])));  // 1 - u lies in (0, 1]
  return radius * std::cos(2.0 * std::numbers::pi * to_unit(words[1]));
}

}  // namespace chimera
