#pragma once
// What the processes of a job know and nobody else does.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chimera {

/// 32 bytes of the kernel's random numbers, as 64 hexadecimal digits. Throws Error where it gives none.
[[nodiscard]] std::string make_secret();

/// The first line of a file that its owner alone may read. Throws ConfigError where others may, or nothing is there.
[[nodiscard]] std::string read_secret(const std::string& path);

constexpr std::size_t kProofBytes = 32;
using Proof = std::array<std::uint8_t, kProofBytes>;  // also of random numbers used once

/// Numbers that nobody foresees. Throws Error where the kernel gives none.
[[nodiscard]] Proof random_numbers();
/// HMAC-SHA-256 of the words under the secret (RFC 2104): only who knows the secret can make it.
[[nodiscard]] Proof prove(std::string_view secret, std::string_view words);
/// Whether they are equal; takes as long where they are not.
[[nodiscard]] bool same_proof(const Proof& one, const Proof& other);
/// Its bytes.
[[nodiscard]] inline std::string_view bytes_of(const Proof& proof) {
  return {reinterpret_cast<const char*>(proof.data()), proof.size()};
}

}  // namespace chimera
