// Gloo's own lines about attempts to connect stay away from standard error; all else is written as ever.

#include "transport/gloo/connect_log.h"

#include <gtest/gtest.h>

#include <iostream>

namespace chimera::testing {
namespace {

TEST(ConnectLogTest, DropsGloosLineAlone) {
  drop_connect_log();
  ::testing::internal::CaptureStderr();
  std::cerr << "a rank says this\n";
  std::cerr
      << "[/pytorch/third_party/gloo/gloo/transport/tcp/debug_logger.cc:9] ERROR failed to connect, willRetry=1\n";
  std::cerr << "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:81] ERROR another thing\n" << 'x' << std::flush;
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "a rank says this\n[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:81] ERROR another thing\nx");
}

TEST(ConnectLogTest, IsAskedForAsOftenAsOneLikes) {
  drop_connect_log();
  const std::streambuf* once = std::cerr.rdbuf();
  drop_connect_log();
  EXPECT_EQ(std::cerr.rdbuf(), once);
}

}  // namespace
}  // namespace chimera::testing
