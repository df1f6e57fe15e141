#pragma once
// Work for a device that is recorded once and then given to it as a whole: a CUDA graph.

#include <functional>
#include <memory>

namespace chimera {

/// What a stream was to be given. Tensors that were made meanwhile have memory that is its own: they hold what the last
/// repetition left there, as long as it lives.
class RecordedWork {
 public:
  RecordedWork() = default;
  RecordedWork(const RecordedWork&) = delete;
  RecordedWork& operator=(const RecordedWork&) = delete;
  virtual ~RecordedWork() = default;
  /// Gives all of it to the calling thread's current stream. Nobody waits. What was read of the host while it was
  /// recorded (numbers, sizes, addresses) is what it was then.
  virtual void repeat() = 0;
};

/// Calls a function and records what that gives to the calling thread's current stream, and to others that wait for
/// this one and are waited for, in place of having it done. Throws Error where the function waits for the device.
using RecordWork = std::function<std::unique_ptr<RecordedWork>(const std::function<void()>& work)>;

}  // namespace chimera
