#include "core/crc32c.h"

#include <array>

namespace chimera {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Bit-reversed

/// [byte]: remainder after eight division steps
constexpr std::array<std::uint32_t, 256> kRemainders = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1U) ^ ((rest & 1U) != 0 ? kPolynomial : 0U);
    table[byte] = rest;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  // Starts and ends inverted, so that leading and trailing zero bytes change the checksum.
  std::uint32_t rest = ~0U;
  for (const char byte : bytes) rest = kRemainders[(rest ^ static_cast<unsigned char>(byte)) & 0xFFU] ^ (rest >> 8U);
  return ~rest;
}

}  // namespace chimera
