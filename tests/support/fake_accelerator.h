#pragma once
// GPUs that do not exist, for code that decides by their properties.

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "train/setup/device.h"
#include "transport/accelerator.h"

namespace chimera::testing {

struct FakeAccelerator : Accelerator {
  at::DeviceType device_type = at::kCUDA;
  int devices = 4;
  GpuTraits each = {.name = "Fake GPU",
                    .uuid = "",
                    .multiprocessors = 100,
                    .has_bfloat16 = true,
                    .has_tf32 = true,
                    .memory_bytes = std::int64_t{80} << 30};
  std::string fault = {};
  std::int64_t peak = 0;
  std::int64_t used = 0;
  std::int64_t retries = 0;
  using Connect = std::function<std::unique_ptr<Transport>(const NcclOptions& options)>;
  Connect connects = [](const NcclOptions& /*options*/) -> std::unique_ptr<Transport> {
    throw std::logic_error("nobody connects these");
  };

  [[nodiscard]] at::DeviceType type() const override { return device_type; }
  [[nodiscard]] int num_devices() const override { return devices; }
  [[nodiscard]] GpuTraits traits(int gpu) const override {
    GpuTraits traits = each;
    traits.uuid = std::to_string(gpu);
    return traits;
  }
  [[nodiscard]] std::int64_t peak_bytes(int gpu) const override { return peak + gpu; }
  [[nodiscard]] std::int64_t used_bytes(int gpu) const override { return used + gpu; }
  [[nodiscard]] std::int64_t allocation_retries(int /*gpu*/) const override { return retries; }
  [[nodiscard]] std::string problem() const override { return fault; }
  std::function<void()> releases = [] {};
  void release_cache() const override { releases(); }
  std::function<void(const std::string&)> names_range = [](const std::string& /*name*/) {};
  void name_range(const std::string& name) const override { names_range(name); }
  CaptureGraph records = [](const auto&, const DeviceGraph*, const auto&) -> std::unique_ptr<DeviceGraph> {
    throw std::logic_error("nobody records on these");
  };
  [[nodiscard]] std::unique_ptr<DeviceGraph> record(const std::function<void()>& work, const DeviceGraph* shared,
                                                    const std::vector<at::Generator>& generators) const override {
    return records(work, shared, generators);
  }
  [[nodiscard]] std::unique_ptr<Transport> connect(const NcclOptions& options) const override {
    return connects(options);
  }
};

/// Replaces accelerator() during its lifetime.
class ScopedAcceleratorOverride {
 public:
  explicit ScopedAcceleratorOverride(const Accelerator& gpus) { replace_accelerator(&gpus); }
  ScopedAcceleratorOverride& operator=(ScopedAcceleratorOverride&&) = delete;
  ~ScopedAcceleratorOverride() { replace_accelerator(nullptr); }
};

}  // namespace chimera::testing
