// libchimera_cuda.so over the fake device (support/fake_device.h): beside a copy of the program it makes `--device
// cuda` work without a GPU, for threads. benchmarks/gpu/measure.py --rehearse runs its list on it.

#include "support/fake_accelerator.h"
#include "support/fake_device.h"

namespace chimera::testing {
namespace {

const Accelerator& fake_gpu() {
  static FakeAccelerator gpu;
  static const bool is_ready = [] {
    FakeDevice::install();
    gpu.device_type = kFakeDevice;
    gpu.devices = 1;
    gpu.records = [](const auto& work, const DeviceGraph* /*shared*/, const auto& generators) {
      return FakeDevice::get().record(work, generators);
    };
    return true;
  }();
  static_cast<void>(is_ready);
  return gpu;
}

}  // namespace
}  // namespace chimera::testing

extern "C" __attribute__((visibility("default"))) const chimera::Accelerator* chimera_accelerator_12() {
  return &chimera::testing::fake_gpu();
}
