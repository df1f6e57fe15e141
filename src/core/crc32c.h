#pragma once
// The checksum of TensorBoard's event files.

#include <cstdint>
#include <string_view>

namespace chimera {

/// CRC-32C (Castagnoli), as iSCSI has it: RFC 3720, appendix B.4. Written out: no package that is installed has it, and
/// a few hundred bytes a step need no speed.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace chimera
