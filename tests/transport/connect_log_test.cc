// Gloo's messages about attempts to connect are filtered from standard error; all other output is unchanged.

#include "transport/gloo/connections.h"

#include <gtest/gtest.h>

#include <iostream>

namespace chimera::testing {
namespace {

TEST(ConnectLogTest, DropsOnlyLinesAboutConnecting) {
  drop_connect_log();
  ::testing::internal::CaptureStderr();
  std::cerr << "a rank says this\n";
  std::cerr
      << "[/pytorch/third_party/gloo/gloo/transport/tcp/debug_logger.cc:9] ERROR failed to connect, willRetry=1\n";
  std::cerr
      << "[E1123 08:16:08 ProcessGroupGloo.cpp:67] Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/"
         "transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:6275\n";
  std::cerr << "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:81] ERROR another thing\n" << 'x' << std::flush;
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "a rank says this\n[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:81] ERROR another thing\nx");
}

TEST(ConnectLogTest, MayBeInstalledRepeatedly) {
  drop_connect_log();
  const std::streambuf* once = std::cerr.rdbuf();
  drop_connect_log();
  EXPECT_EQ(std::cerr.rdbuf(), once);
}

}  // namespace
}  // namespace chimera::testing
