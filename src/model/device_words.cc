#include "model/device_words.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/random_words.h"

namespace chimera {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kLow = 0xffff'ffff;

/// The four words of a block in 64 bits each. int64 products wrap around, and shifts of negative ones keep the sign,
/// which kLow cuts off.
struct Blocks {
  at::Tensor a, b, c, d;

  void round(std::int64_t low_key, std::int64_t high_key) {
    at::Tensor first = a * 0xD251'1F53;
    at::Tensor second = c * 0xCD9E'8D57;
    a = second.bitwise_right_shift(32).bitwise_and_(kLow).bitwise_xor(b).bitwise_xor_(low_key);
    c = first.bitwise_right_shift(32).bitwise_and_(kLow).bitwise_xor(d).bitwise_xor_(high_key);
    b = second.bitwise_and_(kLow);
    d = first.bitwise_and_(kLow);
  }
};

}  // namespace

at::Tensor device_words(const WordSequences& sequences, std::int64_t samples, std::int64_t count, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  constexpr auto kGroup = static_cast<std::int64_t>(kWordGroup);
  const std::int64_t groups = (count + kGroup - 1) / kGroup;
  const auto number = [&](std::uint32_t value) {
    return at::full({1, 1, 1}, static_cast<std::int64_t>(value), options);
  };
  const auto ascending = [&](std::int64_t first, std::int64_t size) {
    return at::arange(first, first + size, options).bitwise_and_(kLow);
  };
  Blocks blocks{.a = ascending(0, groups * kLanes).view({1, groups, kLanes}),
                .b = number(sequences.step),
                .c = ascending(sequences.first_sample, samples).view({samples, 1, 1}),
                .d = number(sequences.place)};
  auto low_key = static_cast<std::uint32_t>(sequences.key);
  auto high_key = static_cast<std::uint32_t>(sequences.key >> 32U);
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    blocks.round(low_key, high_key);
    low_key += 0x9E37'79B9U;
    high_key += 0xBB67'AE85U;
  }
  return at::stack({blocks.a, blocks.b, blocks.c, blocks.d}, 2).view({samples, groups * kGroup}).narrow(1, 0, count);
}

}  // namespace chimera
