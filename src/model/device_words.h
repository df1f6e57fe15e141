#pragma once
// The words of core/random_words.h where tensors lie, so that masks need not travel.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace chimera {

/// The masks of several samples: sample s has the sequence (key, {step, first_sample + s, place}).
struct WordSequences {
  std::uint64_t key = 0;
  std::uint32_t step = 0;
  std::uint32_t first_sample = 0;
  std::uint32_t place = 0;
};

/// Words 0 .. count - 1 of the sequences of `samples` samples, [samples, count] int64, made on `device` by its integer
/// arithmetic: those of random_words() in every bit. Some 130 kernels over a quarter of the words each, whatever their
/// number; nobody waits for them.
[[nodiscard]] at::Tensor device_words(const WordSequences& sequences, std::int64_t samples, std::int64_t count,
                                      at::Device device);

}  // namespace chimera
