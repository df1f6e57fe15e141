#include "rendezvous/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <fstream>

#include "core/error.h"
#include "core/file_descriptor.h"

namespace chimera {

Proof random_numbers() {
  Proof numbers{};
  if (::getrandom(numbers.data(), numbers.size(), 0) != static_cast<ssize_t>(numbers.size())) {
    throw Error("cannot make a secret: " + system_message(errno));
  }
  return numbers;
}

std::string make_secret() {
  std::string digits;
  for (const std::uint8_t byte : random_numbers()) digits += fmt::format("{:02x}", byte);
  return digits;
}

std::string read_secret(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    throw ConfigError(fmt::format("cannot read the secret in '{}': {}", path, system_message(errno)));
  }
  if ((status.st_mode & 077U) != 0) {
    throw ConfigError(fmt::format("others may read the secret in '{}'; chmod 600 it", path));
  }
  std::ifstream file(path);
  std::string secret;
  std::getline(file, secret);
  if (secret.empty()) throw ConfigError(fmt::format("'{}' has no secret in its first line", path));
  return secret;
}

Proof prove(std::string_view secret, std::string_view words) {
  Proof proof{};
  unsigned int size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(words.data());
  // An empty key may not be a null pointer.
  const char* key = secret.empty() ? "" : secret.data();
  if (::HMAC(::EVP_sha256(), key, static_cast<int>(secret.size()), bytes, words.size(), proof.data(), &size) ==
      nullptr) {
    throw Error("cannot compute a proof: SHA-256 is not available");
  }
  return proof;
}

bool same_proof(const Proof& one, const Proof& other) {
  return ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace chimera
