#pragma once

// Messages between stages: activations and their gradients. On the CPU, a message has a tag (MessageTag in
// schedule/message_header.h) with its step and op. The receiver throws TransportError if it expects another step or op.
// The Gloo transport sends the tag as a header: make_message() writes it in front of the tensor in the same block of
// memory, so a send copies nothing, and open_message() checks it. The transport between threads passes the tag beside
// the tensor, and uses only throw_mismatch() and check_bits(). The transport between GPUs (pairs/) sends no tags.

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/message_header.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// Free bytes in front of a tensor's first element, for a message header. A multiple of the alignment of tensors.
inline constexpr std::int64_t kHeaderRoomBytes = 64;

/// Reserves kHeaderRoomBytes before each CPU tensor that ATen allocates from now on.
void leave_header_room();

/// Returns a tensor of bytes, [kHeaderRoomBytes + nbytes], that shares the memory of `tensor` (contiguous) and includes
/// the room in front of it. Returns nothing if there is no such room, or if an earlier result for this memory still
/// exists.
[[nodiscard]] std::optional<at::Tensor> with_header_room(const at::Tensor& tensor);

/// Sizes and type of a message, which both ends know. For transformers: hidden states [micro_batch, sequence, hidden].
struct TensorSpec {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  bool is_verified = false;  ///< the receiver compares the checksum in the tag (--verify-messages)
};

/// Throws TransportError for an unexpected message. `arrived` describes what arrived, for the message.
[[noreturn]] void throw_mismatch(RankId from, RankId to, const MessageTag& expected, const std::string& arrived);

/// Returns the hash XXH3 of the bytes of `tensor` (contiguous, on the CPU).
[[nodiscard]] std::uint64_t checksum_of(const at::Tensor& tensor);
/// Throws TransportError if `spec.is_verified` and the checksum in `arrived` differs. Tests can inject a fault here
/// (fault point `message`, action `flip`), which flips one bit of the tensor.
void check_bits(const at::Tensor& tensor, const TensorSpec& spec, const MessageTag& arrived, RankId from, RankId to);

static_assert(kHeaderBytes == kHeaderRoomBytes);

/// Returns an uninitialized buffer for header and tensor, bytes [kHeaderBytes + tensor bytes].
[[nodiscard]] at::Tensor message_buffer(const TensorSpec& spec);
/// Returns a view of the tensor in a message_buffer().
[[nodiscard]] at::Tensor tensor_of(const at::Tensor& buffer, const TensorSpec& spec);
/// Returns `tensor` (contiguous, on the CPU) as a message. Copies it unless it has free header room.
[[nodiscard]] at::Tensor make_message(const at::Tensor& tensor, const MessageTag& tag);
/// Returns the tensor in a buffer from rank `from`, and sets `sent`, if not null, to the sender's clock when it sent
/// the message (MessageTag::sent). Throws the error of throw_mismatch() unless the header matches `expected`, and the
/// errors of check_bits().
[[nodiscard]] at::Tensor open_message(const at::Tensor& buffer, const TensorSpec& spec, const MessageTag& expected,
                                      RankId from, RankId to, double* sent = nullptr);

}  // namespace chimera
