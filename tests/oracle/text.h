#pragma once
// Samples, implemented from the text of docs/data.md: the windows of a text that a step trains on, and BERT's pairs and
// masks.

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

namespace oracle {

enum class Family : std::uint8_t { Gpt2, Bert, Llama };

/// A batch of samples. Tensors are [samples, sequence] except `second_is_other`.
struct Batch {
  at::Tensor tokens;
  at::Tensor targets;          ///< -100 at positions without a target
  at::Tensor token_types;      ///< BERT: 0 in the first text, 1 in the second
  at::Tensor second_is_other;  ///< BERT, [samples]: 1 if the second text does not follow the first
};

/// The first 95 % of a text, or its last 5 %.
[[nodiscard]] std::string training_part(const std::string& text);
[[nodiscard]] std::string validation_part(const std::string& text);

/// Samples first, first + 1, ... of the infinite sequence of epochs.
[[nodiscard]] Batch read_batch(Family family, const std::string& part, std::int64_t sequence, std::uint64_t seed,
                               std::int64_t first, std::int64_t count);

/// Number of samples in an epoch.
[[nodiscard]] std::int64_t epoch_size(Family family, const std::string& part, std::int64_t sequence);

}  // namespace oracle
