#pragma once
// Tests whose GPUs are fake devices.

#include <gtest/gtest.h>

#include <exception>
#include <string>

#include "support/fake_accelerator.h"
#include "support/fake_device.h"
#include "support/message_of.h"
#include "train/setup/device.h"

namespace chimera::testing {

class FakeGpuTest : public ::testing::Test {
 protected:
  FakeGpuTest() {
    gpus_.device_type = kFakeDevice;
    FakeDevice::install();
    FakeDevice::get().clear();
  }

  static std::string what_of(const std::exception_ptr& error) {
    return message_of<std::exception>([&] { std::rethrow_exception(error); });
  }

  FakeAccelerator gpus_;
  ScopedAcceleratorOverride instead_{gpus_};
};

}  // namespace chimera::testing
