#pragma once
// The checksum of TensorBoard's event files and of the training runs of a sweep. Checkpoints and messages use XXH3,
// which is faster.

#include <cstdint>
#include <string_view>

namespace chimera {

/// Returns the CRC-32C (Castagnoli) checksum of the bytes. Source: RFC 3720, appendix B.4.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace chimera
