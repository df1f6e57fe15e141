#pragma once
// One box of the figure: what a worker does to one micro-batch at one stage.

#include <cstdint>
#include <optional>
#include <string>

#include "core/ids.h"

namespace chimera {

enum class OpKind : std::uint8_t {
  Forward,         ///< F
  Backward,        ///< B, whole: input gradient and weight gradient
  BackwardInput,   ///< I, input gradient
  BackwardWeight,  ///< W, weight gradient
};
inline constexpr int kOpKinds = 4;

struct Op {
  OpKind kind = OpKind::Forward;
  ReplicaId replica;         // the copy of the model being trained
  StageId stage;             // 0 .. S-1
  MicroBatchId micro_batch;  // unique across replicas
  /// The weights it uses: those after this many updates of its stage. 0 throughout a synchronous schedule.
  std::int32_t weight_version = 0;
  /// Whether it and the op behind it on its worker are a pair, which may run together (Pairs).
  bool paired = false;
  friend bool operator==(const Op&, const Op&) = default;
};

/// F, B, I or W.
[[nodiscard]] char letter(OpKind kind);
/// The kind that a letter names, if any.
[[nodiscard]] std::optional<OpKind> op_kind(char letter);
/// Stage, letter, micro-batch, as in PyTorch: `2F5`. The replica follows from the micro-batch.
[[nodiscard]] std::string to_text(const Op& op);
/// Whether the op produces the gradient of its stage's input (B or I).
[[nodiscard]] constexpr bool gives_input_gradient(OpKind kind) {
  return kind == OpKind::Backward || kind == OpKind::BackwardInput;
}
/// Whether the op completes the weight gradient, so that the activation may be freed (B or W).
[[nodiscard]] constexpr bool gives_weight_gradient(OpKind kind) {
  return kind == OpKind::Backward || kind == OpKind::BackwardWeight;
}

}  // namespace chimera
