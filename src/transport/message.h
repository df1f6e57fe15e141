#pragma once
// What travels between processes: a header of 64 bytes and, right behind it in the same buffer, a tensor. The header
// says what the tensor is, so that two ends that disagree about the program find out instead of training on it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "schedule/op.h"
#include "schedule/rank_layout.h"
#include "transport/header_room.h"

namespace chimera {

/// Sizes and type of a message, known to both ends beforehand: hidden states [micro_batch, sequence, hidden].
struct TensorSpec {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
};

/// What a message is, known to both ends beforehand: the tensor that `op` makes in a step.
struct MessageTag {
  std::int64_t step = 0;  ///< from 1
  Op op;                  ///< its weight version is of no account here
  friend bool operator==(const MessageTag& a, const MessageTag& b) {
    return a.step == b.step && a.op.kind == b.op.kind && a.op.replica == b.op.replica && a.op.stage == b.op.stage &&
           a.op.micro_batch == b.op.micro_batch;
  }
};

/// `1F3 of replica 0 in step 7`.
[[nodiscard]] std::string to_text(const MessageTag& tag);

/// What each transport throws where another message arrived than the one expected: TransportError, both named.
[[noreturn]] void throw_mismatch(RankId from, RankId to, const MessageTag& expected, const std::string& arrived);

inline constexpr std::int64_t kHeaderBytes = kHeaderRoomBytes;

/// Room for a message, bytes [kHeaderBytes + those of the tensor], not initialised.
[[nodiscard]] at::Tensor message_buffer(const TensorSpec& spec);
/// The tensor in a buffer of message_buffer; it shares and keeps the buffer's memory.
[[nodiscard]] at::Tensor tensor_of(const at::Tensor& buffer, const TensorSpec& spec);
/// `tensor` (contiguous, on the CPU) as a message: its own memory where it has header room to spare, else a copy.
[[nodiscard]] at::Tensor make_message(const at::Tensor& tensor, const MessageTag& tag);
/// Throws throw_mismatch() unless the message that came from worker `from` says that it is `expected`.
void check_message(const at::Tensor& buffer, const MessageTag& expected, RankId from, RankId to);

}  // namespace chimera
