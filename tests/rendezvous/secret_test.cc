
#include "rendezvous/channel.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "core/error.h"
#include "core/files.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string hex(const Digest& proof) {
  std::string text;
  for (const std::uint8_t byte : proof) text += fmt::format("{:02x}", byte);
  return text;
}

TEST(SecretTest, ProofsAreThoseOfRfc4231) {
  EXPECT_EQ(hex(prove(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(prove("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(SecretTest, ProofsNeedTheSameSecret) {
  EXPECT_TRUE(are_equal_digests(prove("one", "words"), prove("one", "words")));
  EXPECT_FALSE(are_equal_digests(prove("one", "words"), prove("other", "words")));
  EXPECT_FALSE(are_equal_digests(prove("", "words"), prove("one", "words")));
}

TEST(SecretTest, SecretsAreUnique) {
  EXPECT_EQ(make_secret().size(), 64U);
  EXPECT_NE(make_secret(), make_secret());
}

TEST(SecretTest, RejectsAFileThatOtherUsersCanRead) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "secret";
  EXPECT_THAT([&] { return read_secret(path); }, ThrowsMessage<ConfigError>(HasSubstr("No such file")));
  std::ofstream(path) << "a word\n";
  ::chmod(path.c_str(), 0640);
  EXPECT_THAT([&] { return read_secret(path); }, ThrowsMessage<ConfigError>(HasSubstr("chmod 600")));
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(read_secret(path), "a word");
  std::ofstream(path) << "a word\r\n";
  EXPECT_EQ(read_secret(path), "a word") << "of another editor on another host";
  std::ofstream(path).flush();
  EXPECT_THAT([&] { return read_secret(path); }, ThrowsMessage<ConfigError>(HasSubstr("has no secret")));
}

}  // namespace
}  // namespace chimera
