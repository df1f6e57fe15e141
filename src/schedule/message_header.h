#pragma once
// What travels between processes before a tensor: 64 bytes that say which tensor of the program it is, so that two ends
// that disagree about the program find out instead of training on it.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "schedule/op.h"

namespace chimera {

/// What a message is, known to both ends beforehand: the tensor that `op` makes in a step.
struct MessageTag {
  std::int64_t step = 0;  ///< from 1
  Op op;                  ///< its weight version is of no account here
  /// XXH3 of the tensor's bytes, where the sender gives it; not part of what the message is.
  std::optional<std::uint64_t> checksum = std::nullopt;
  friend bool operator==(const MessageTag& a, const MessageTag& b) {
    return a.step == b.step && a.op.kind == b.op.kind && a.op.replica == b.op.replica && a.op.stage == b.op.stage &&
           a.op.micro_batch == b.op.micro_batch;
  }
};

/// `1F3 of replica 0 in step 7`.
[[nodiscard]] std::string to_text(const MessageTag& tag);

inline constexpr std::int64_t kHeaderBytes = 64;
using MessageHeader = std::array<std::uint8_t, kHeaderBytes>;

/// The header of a message, in the byte order of the machines.
[[nodiscard]] MessageHeader to_header(const MessageTag& tag);
/// The tag whose header this is; nothing where the bytes are no header.
[[nodiscard]] std::optional<MessageTag> tag_of(const MessageHeader& header);

}  // namespace chimera
