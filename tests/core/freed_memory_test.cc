#include "core/resident_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>

namespace chimera {
namespace {

/// Number of pages that the kernel maps for a block of `bytes`.
long pages_mapped_for(std::size_t bytes) {
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  constexpr std::size_t kPage = 4096;
  auto* block = static_cast<volatile char*>(std::malloc(bytes));
  for (std::size_t i = 0; i < bytes; i += kPage) block[i] = 1;
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  std::free(const_cast<char*>(block));
  return after.ru_minflt - before.ru_minflt;
}

TEST(FreedMemoryTest, IsReusedByTheNextStep) {
  constexpr std::size_t kBytes = 200 << 20;
  keep_freed_memory();
  EXPECT_GT(pages_mapped_for(kBytes), 0);
  EXPECT_LT(pages_mapped_for(kBytes), 8) << "of 51,200 pages, or 100 large ones";
}

}  // namespace
}  // namespace chimera
