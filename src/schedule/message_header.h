#pragma once
// A 64-byte header in front of each tensor that ranks send. It names the tensor, so processes that run different
// programs or steps detect the mismatch instead of computing with the wrong tensor. transport/message.h writes and
// compares the headers.

#include <array>

#include "schedule/op.h"

namespace chimera {

/// Names a tensor: the result of `op` in a step.
struct MessageTag {
  std::int64_t step = 0;  ///< Number of the step, from 1
  Op op;                  ///< weight_version and paired are not part of the name
  /// XXH3 hash of the tensor's bytes, with --verify-messages; not part of the name.
  std::optional<std::uint64_t> checksum = std::nullopt;
  double sent = 0;  ///< When the tensor left, by the sender's monotonic_seconds() (core/clock.h), to measure its
                    ///< transit; 0: not known. Not part of the name
  friend bool operator==(const MessageTag& a, const MessageTag& b) {
    return a.step == b.step && a.op.kind == b.op.kind && a.op.replica == b.op.replica && a.op.stage == b.op.stage &&
           a.op.micro_batch == b.op.micro_batch && a.op.slice == b.op.slice;
  }
};

/// Returns, for example, `1F3 of replica 0 in step 7`.
[[nodiscard]] std::string to_text(const MessageTag& tag);

inline constexpr std::int64_t kHeaderBytes = 64;
using MessageHeader = std::array<std::uint8_t, kHeaderBytes>;

/// Returns the header, in the machine's byte order.
[[nodiscard]] MessageHeader to_header(const MessageTag& tag);
/// Returns the tag, or nothing if the bytes are not a valid header. Its op has weight version 0 and is not paired.
[[nodiscard]] std::optional<MessageTag> tag_of(const MessageHeader& header);

}  // namespace chimera
