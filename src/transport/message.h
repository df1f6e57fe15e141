#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/message_header.h"
#include "schedule/rank_layout.h"

// Room for a header right before a tensor, so that a message need not be a copy of it.

// What travels between processes: a header (schedule/message_header.h) and, right behind it in the same buffer, a
// tensor.

namespace chimera {

/// Bytes that are left free before the first element: a multiple of the alignment of tensors, which thus stays.
inline constexpr std::int64_t kHeaderRoomBytes = 64;

/// From now on every CPU tensor that this process allocates through ATen has kHeaderRoomBytes before its first element.
/// Once is enough; later calls do nothing.
void leave_header_room();

/// The memory of `tensor` (contiguous) together with its header room, bytes [kHeaderRoomBytes + those of the tensor];
/// nothing where it has none, as it was allocated before leave_header_room() or does not begin where its memory does,
/// or where an earlier result for the same memory is still alive. It keeps the tensor's memory.
[[nodiscard]] std::optional<at::Tensor> with_header_room(const at::Tensor& tensor);

/// Sizes and type of a message, known to both ends beforehand: hidden states [micro_batch, sequence, hidden].
struct TensorSpec {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  bool is_verified = false;  ///< its tag has a checksum, which the receiver compares (verified_messages.h)
};

/// What each transport throws where another message arrived than the one expected: TransportError, both named.
[[noreturn]] void throw_mismatch(RankId from, RankId to, const MessageTag& expected, const std::string& arrived);

/// XXH3 (64 bits) of the bytes of `tensor` (contiguous, on the CPU).
[[nodiscard]] std::uint64_t checksum_of(const at::Tensor& tensor);
/// What each transport does with a tensor of the expected tag before anybody reads it. Where `spec` asks for that it
/// throws TransportError unless the bytes are those of the sender's checksum. Fault point: message, where `flip`
/// changes a bit of the tensor.
void check_bits(const at::Tensor& tensor, const TensorSpec& spec, const MessageTag& arrived, RankId from, RankId to);

static_assert(kHeaderBytes == kHeaderRoomBytes);

/// Room for a message, bytes [kHeaderBytes + those of the tensor], not initialised.
[[nodiscard]] at::Tensor message_buffer(const TensorSpec& spec);
/// The tensor in a buffer of message_buffer; it shares and keeps the buffer's memory.
[[nodiscard]] at::Tensor tensor_of(const at::Tensor& buffer, const TensorSpec& spec);
/// `tensor` (contiguous, on the CPU) as a message: its own memory where it has header room to spare, else a copy.
[[nodiscard]] at::Tensor make_message(const at::Tensor& tensor, const MessageTag& tag);
/// The tensor in a buffer that came from rank `from`. Throws throw_mismatch() unless its header says that it is
/// `expected`, and what check_bits() throws.
[[nodiscard]] at::Tensor open_message(const at::Tensor& buffer, const TensorSpec& spec, const MessageTag& expected,
                                      RankId from, RankId to);

}  // namespace chimera
