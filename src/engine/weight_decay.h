#pragma once
// Which parameters decay towards zero.

#include <cstdint>
#include <string_view>

#include "core/names.h"

namespace chimera {

enum class DecayedWeights : std::uint8_t {
  Matrices,      ///< tensors of two or more dimensions: neither biases nor norms
  NoEmbeddings,  ///< those but for embeddings; a tied matrix is one
  All,
};
template <>
inline constexpr auto kNames<DecayedWeights> =
    std::to_array<Named<DecayedWeights>>({{DecayedWeights::Matrices, "matrices"},
                                          {DecayedWeights::NoEmbeddings, "no-embeddings"},
                                          {DecayedWeights::All, "all"}});

/// Whether this is a matrix that a model looks up rows of, by its name: one that contains `embed`, as Hugging Face's of
/// BERT and Llama do, or GPT-2's `wte` and `wpe`.
[[nodiscard]] bool is_embedding(std::string_view name, std::int64_t dimensions);

/// Whether weight decay acts on that parameter.
[[nodiscard]] bool decays(DecayedWeights decayed, std::string_view name, std::int64_t dimensions);

}  // namespace chimera
