#include "checkpoint/diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <future>
#include <limits>

#include "checkpoint/manifest.h"

// compare_tensors() deals the names of tensors out to threads. compare() reads a tensor of both checkpoints block by
// block, as doubles whatever their types, and sums squares as it goes, so that no tensor is in memory as a whole.

namespace chimera {
namespace {

// Two buffers of at most 2 MiB for each thread, even for tensors of many GB.
constexpr std::uint64_t kElementsAtOnce = std::uint64_t{1} << 18;

template <class Number>
Number stored(const std::byte* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
double half_precision(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1f)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  // Without an exponent the number is subnormal, a multiple of 2^-24. Otherwise a leading 1 (0x400) belongs to the
  // fraction.
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(fraction + 0x400, exponent - 25);
}

double number_at(ElementType type, const std::byte* bytes, const std::string& tensor) {
  switch (type) {
    case ElementType::F32: return stored<float>(bytes);
    case ElementType::F64: return stored<double>(bytes);
    // The upper half of a float32.
    case ElementType::BF16: return std::bit_cast<float>(std::uint32_t{stored<std::uint16_t>(bytes)} << 16);
    case ElementType::F16: return half_precision(stored<std::uint16_t>(bytes));
    default: throw CheckpointError(fmt::format("tensor {}: is of type {}", tensor, to_text(type)));
  }
}

/// Buffered elements of a tensor.
class Elements {
 public:
  explicit Elements(const WeightFiles::Found& found)
      : found_(found), size_(bits_of(found.tensor.type) / 8), bytes_(kElementsAtOnce * size_) {}
  void read(std::uint64_t first, std::uint64_t count) {
    found_.file->read(found_.tensor, first * size_, std::span(bytes_).first(count * size_));
  }
  [[nodiscard]] double operator[](std::uint64_t i) const {
    return number_at(found_.tensor.type, &bytes_[i * size_], found_.tensor.name);
  }

 private:
  const WeightFiles::Found& found_;
  std::uint64_t size_;
  std::vector<std::byte> bytes_;
};

TensorDifference compare(const WeightFiles::Found& one, const WeightFiles::Found& other) {
  TensorDifference difference{.name = one.tensor.name, .reason = {}};
  if (one.tensor.shape != other.tensor.shape) {
    difference.reason =
        fmt::format("shape [{}] and [{}]", fmt::join(one.tensor.shape, ", "), fmt::join(other.tensor.shape, ", "));
    return difference;
  }
  // Types of less than a byte are refused below, by number_at().
  difference.elements = one.tensor.bytes / std::max<std::uint64_t>(bits_of(one.tensor.type) / 8, 1);
  Elements ours(one);
  Elements theirs(other);
  double squares = 0;
  double square_differences = 0;
  for (std::uint64_t first = 0; first < difference.elements; first += kElementsAtOnce) {
    const std::uint64_t count = std::min(kElementsAtOnce, difference.elements - first);
    ours.read(first, count);
    theirs.read(first, count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const double a = ours[i];
      const double b = theirs[i];
      squares += a * a;
      // Bits, so that equal NaNs are equal, and 0 and -0 differ.
      if (std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b)) continue;
      ++difference.differing;
      const double apart = std::abs(a - b);
      square_differences += apart * apart;
      // A NaN compares as false with everything: it replaces the largest difference, and nothing replaces it.
      if (!std::isnan(difference.largest) && !(apart <= difference.largest)) difference.largest = apart;
    }
  }
  // Zeros of different signs differ in bits alone.
  if (square_differences != 0) difference.relative = std::sqrt(square_differences / squares);
  return difference;
}

}  // namespace

std::vector<TensorDifference> compare_tensors(const CheckpointTensors& first, const CheckpointTensors& second,
                                              int threads) {
  std::vector<std::string> names;
  std::ranges::set_union(first.names(), second.names(), std::back_inserter(names));
  std::vector<TensorDifference> all(names.size());
  // Threads take the next tensor when they have finished one, because sizes differ widely.
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < names.size(); i = next++) {
      const auto one = first.find(names[i]);
      const auto other = second.find(names[i]);
      all[i] = one && other
                   ? compare(*one, *other)
                   : TensorDifference{.name = names[i], .reason = one ? "only in the first" : "only in the second"};
    }
  };
  std::vector<std::future<void>> others;
  for (int i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  std::erase_if(all, [](const TensorDifference& d) { return d.reason.empty() && d.differing == 0; });
  return all;
}

}  // namespace chimera
