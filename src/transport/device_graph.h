#pragma once

// Device work that is captured once and launched again, such as a CUDA graph. One launch of a graph costs the host less
// than the launches of all its kernels. `--cuda-graphs` captures the instructions of a step, `--op-graphs` single ops
// (runtime/recordings.h).

#include <ATen/core/Generator.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace chimera {

/// Recorded device work, such as a CUDA graph. It owns the tensors created during recording, which hold the last
/// repetition's values.
class DeviceGraph {
 public:
  DeviceGraph& operator=(DeviceGraph&&) = delete;
  virtual ~DeviceGraph() = default;
  /// Enqueues the work on the current stream. Host values (numbers, sizes, addresses) stay as recorded.
  virtual void repeat() = 0;
  /// Returns what repeat() enqueues: names of kernels, "copy" or "fill"; empty if unknown.
  [[nodiscard]] virtual std::vector<std::string> kernels() const { return {}; }
};

/// Calls a function and records, without running it, the work on the current stream and streams joined with it. Throws
/// Error if the function waits for the device. The graph allocates in a memory pool of its own or, if `shared` is not
/// null, in the pool of `shared`; the graphs of a pool must not run at the same time. `work` may draw random numbers
/// only from `generators`; each repetition reads their current seeds.
using CaptureGraph = std::function<std::unique_ptr<DeviceGraph>(
    const std::function<void()>& work, const DeviceGraph* shared, const std::vector<at::Generator>& generators)>;

}  // namespace chimera
