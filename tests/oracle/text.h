#pragma once
// Samples of docs/data.md, written from its text: which windows of a text a step trains on, and what BERT makes of
// them.

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

namespace oracle {

enum class Family : std::uint8_t { Gpt2, Bert, Llama };

/// Samples side by side. Tensors are [samples, sequence] but for `second_is_other`.
struct Batch {
  at::Tensor tokens;
  at::Tensor targets;          ///< -100 where nothing is to be predicted
  at::Tensor token_types;      ///< BERT: 0 in the first text, 1 in the second
  at::Tensor second_is_other;  ///< BERT, [samples]: 1 where the second text does not follow the first
};

/// The first 95 % of a text, or its last 5 %.
[[nodiscard]] std::string training_part(const std::string& text);
[[nodiscard]] std::string validation_part(const std::string& text);

/// Samples first, first + 1, ... of the endless order of all epochs.
[[nodiscard]] Batch read_batch(Family family, const std::string& part, std::int64_t sequence, std::uint64_t seed,
                               std::int64_t first, std::int64_t count);

/// How many samples an epoch has.
[[nodiscard]] std::int64_t epoch_size(Family family, const std::string& part, std::int64_t sequence);

}  // namespace oracle
