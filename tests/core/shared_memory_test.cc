#include "core/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace chimera {
namespace {

TEST(SharedMemoryTest, AnotherProcessSeesAndChangesIt) {
  const SharedMemory memory(4096);
  memory.data()[100] = std::byte{7};
  const SharedAddress address = memory.address();
  const pid_t child = ::fork();
  if (child == 0) {
    const SharedMemory opened(address);
    const bool seen = opened.size() == 4096 && opened.data()[100] == std::byte{7};
    opened.data()[101] = std::byte{8};
    ::_exit(seen ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory.data()[101], std::byte{8});
}

TEST(SharedMemoryTest, AddressesInsideAreFoundAndOthersAreNot) {
  std::byte elsewhere{};
  EXPECT_FALSE(shared_address(&elsewhere));
  const std::byte* gone = nullptr;
  {
    const SharedMemory first(8192);
    const SharedMemory second(4096);
    gone = first.data();
    const auto inside = shared_address(first.data() + 5000);
    ASSERT_TRUE(inside);
    EXPECT_EQ(inside->offset, 5000);
    EXPECT_EQ(inside->file, first.address().file);
    EXPECT_EQ(inside->process, ::getpid());
    EXPECT_EQ(shared_address(second.data())->file, second.address().file);
    EXPECT_FALSE(shared_address(first.data() + first.size() + 4096 * 1024));
  }
  EXPECT_FALSE(shared_address(gone));
}

TEST(SharedMemoryTest, AnotherFileAtTheSameDescriptorIsRefused) {
  const SharedMemory memory(16);
  SharedAddress address = memory.address();
  ++address.file;
  EXPECT_THROW(SharedMemory{address}, Error);
  address.process = -1;
  EXPECT_THROW(SharedMemory{address}, Error);
}

}  // namespace
}  // namespace chimera
