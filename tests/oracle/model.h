#pragma once
// GPT-2, BERT and Llama in float64, as their papers and docs/data.md define them: plain tensor operations, without
// fused kernels or stages.

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>

#include "oracle/text.h"

namespace oracle {

struct Architecture {
  Family family = Family::Gpt2;
  std::int64_t layers = 8;
  std::int64_t hidden = 16;
  std::int64_t heads = 2;
  std::int64_t key_value_heads = 1;  ///< of Llama
  std::int64_t vocabulary = 256;
  std::int64_t positions = 1024;
  bool tied = false;  ///< the head multiplies by the token embedding
};

/// Parameters by their Hugging Face names.
using Weights = std::map<std::string, at::Tensor>;

/// The weights before the first step; they require gradients.
[[nodiscard]] Weights initial_weights(const Architecture& architecture, std::uint64_t seed);

/// The mean loss over all targets of the batch, a scalar; for BERT, plus the mean loss over its sentence pairs.
[[nodiscard]] at::Tensor mean_loss(const Architecture& architecture, const Weights& weights, const Batch& batch);

}  // namespace oracle
