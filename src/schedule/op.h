#pragma once
// An op is one unit of computation of a worker: the forward or a backward of one stage on one micro-batch, or on one
// slice of a micro-batch (a part of the tokens of each sequence). A whole backward (B) may be split into the input
// gradient (I), which the previous stage waits for, and the weight gradient (W), which only the optimizer step waits
// for.

#include <optional>
#include <string>

#include "core/ids.h"

namespace chimera {

enum class OpKind : std::uint8_t {
  Forward,         ///< F
  Backward,        ///< B, whole backward: input and weight gradient
  BackwardInput,   ///< I, input gradient
  BackwardWeight,  ///< W, weight gradient
};
inline constexpr int kOpKinds = 4;

/// An op of a schedule.
struct Op {
  OpKind kind = OpKind::Forward;
  ReplicaId replica;         // Copy of the model; bidirectional schedules have several (core/ids.h)
  StageId stage;             // From 0, nearest the input
  MicroBatchId micro_batch;  // Unique across replicas
  /// Version of the weights that the op uses: the number of updates that made them. 0 in a synchronous schedule.
  std::int32_t weight_version = 0;
  /// Whether this op and the next op of its worker are a pair, which may overlap (Pairs in schedule.h).
  bool paired = false;
  std::int16_t slice = 0;  // Of the micro-batch, from 0, in the order of the tokens
  friend bool operator==(const Op&, const Op&) = default;
};
static_assert(sizeof(Op) == 20);

/// Updates of an asynchronous schedule. A worker updates a stage after the last backward (B or W) of each
/// `micro_batches` consecutive micro-batches. Update t, from 0, makes weight version t + 1. All ops of a micro-batch at
/// a stage use the same version (weight stashing). Without a delay, this is the newest version when the forward starts.
/// With a delay d, a micro-batch whose gradients go into update t uses version max(0, t - d).
struct AsynchronousUpdates {
  std::int64_t micro_batches = 1;                    // Micro-batches per update
  std::int64_t versions = 1;                         // Maximum number of weight versions of a stage kept at once
  std::optional<std::int64_t> delay = std::nullopt;  // d; empty: newest version
  friend bool operator==(const AsynchronousUpdates&, const AsynchronousUpdates&) = default;
};

/// Returns F, B, I or W.
[[nodiscard]] char letter(OpKind kind);
/// Returns the kind of a letter, or nothing for other letters.
[[nodiscard]] std::optional<OpKind> op_kind(char letter);
/// Returns stage, letter and micro-batch, as in PyTorch: `2F5`. Appends the slice (`2F5.3`) if a micro-batch has
/// several `slices`, or if the slice is not 0.
[[nodiscard]] std::string to_text(const Op& op, std::int64_t slices = 1);
/// Returns true for B and I.
[[nodiscard]] constexpr bool gives_input_gradient(OpKind kind) {
  return kind == OpKind::Backward || kind == OpKind::BackwardInput;
}
/// Returns true for B and W. After these ops, the micro-batch's activations on the stage are not needed any more.
[[nodiscard]] constexpr bool gives_weight_gradient(OpKind kind) {
  return kind == OpKind::Backward || kind == OpKind::BackwardWeight;
}

}  // namespace chimera
