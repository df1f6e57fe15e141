#pragma once

// Synchronization of threads that share a device with streams, such as a CUDA GPU. A kernel launch returns before its
// result exists. A thread that passes a tensor to another thread therefore also passes the point in its stream at which
// the tensor is complete (Handover), and the other thread's stream waits for this point. The transport between threads,
// offloaded activations and rank threads use it. On the CPU nothing is needed, and these functions do nothing.

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace chimera {

/// Point in a stream's work. A default-constructed mark is always reached.
class StreamMark {
 public:
  StreamMark() = default;
  /// Marks the end of the work on the current stream of `device`.
  explicit StreamMark(at::Device device);
  /// Makes the current stream, but not the thread, wait for this point.
  void await() const;
  /// Returns whether the device has reached this point. Does not wait.
  [[nodiscard]] bool is_reached() const { return event_ == nullptr || event_->query(); }

 private:
  std::shared_ptr<c10::Event> event_;  // null on the CPU
};

/// Time at which the work of a stream gets to a point; on the CPU, the time of construction.
class TimeMark {
 public:
  /// Marks the end of the work on the current stream of `device`, which must not be recorded as a graph.
  explicit TimeMark(at::Device device);
  /// Returns the seconds from `earlier`, a mark of the same device. Does not wait: call it when a host wait has proven
  /// that the device has reached both.
  [[nodiscard]] double seconds_since(const TimeMark& earlier) const;

 private:
  std::shared_ptr<c10::Event> event_;  // null on the CPU
  double host_seconds_ = 0;
};

/// Measures the times of pieces of work without waiting for the device. For one thread.
class TimedWork {
 public:
  using Add = std::function<void(double seconds)>;
  /// Calls `add` with the seconds from `begin` to now: at once on the CPU, at the next read() on a device.
  void note(const TimeMark& begin, at::Device device, Add add);
  /// Calls the functions that note() has kept. Call it when the host has waited for the device.
  void read();
  /// Drops the pieces that read() has not read.
  void drop() { pieces_.clear(); }

 private:
  struct Piece {
    TimeMark begin;
    TimeMark end;
    Add add;
  };
  std::vector<Piece> pieces_;
};

/// Polls a device until `is_done`. Calls `check` first and then about once per second; it may throw, or be empty.
void poll_until(const std::function<bool()>& is_done, const std::function<void()>& check);

/// Waits until the device has done all work of this process.
void await_device(at::Device device);

/// Keeps memory of `tensor`, created on another stream, from reuse until the current stream has finished with it.
void use_on_current_stream(const at::Tensor& tensor);

/// Guard that makes a stream from the pool of `device` the current stream of this thread, so that thread ranks on one
/// device use different streams. Autograd runs a backward op on the stream of its forward op.
class PooledStreamGuard : c10::OptionalStreamGuard {
 public:
  explicit PooledStreamGuard(at::Device device);
};

/// Separate stream for occasional work, such as copies of activations to host memory. An object keeps one stream for
/// all its work, because PyTorch caches memory per stream.
class SideStream {
 public:
  explicit SideStream(at::Device device);
  /// Calls `work`, whose device work goes to this stream and starts after `begin`. Returns the mark at the end of
  /// `work`.
  StreamMark run(const StreamMark& begin, const std::function<void()>& work) const;

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // empty on the CPU
};

/// Tensor that one thread passes to another, and the point in its stream at which it is complete.
struct Handover {
  at::Tensor tensor;
  StreamMark ready;

  Handover() = default;
  /// Called by the thread that created the tensor.
  explicit Handover(at::Tensor made) : tensor(std::move(made)), ready(tensor.device()) {}
  /// Returns the tensor (may be undefined); the current stream waits until it is complete.
  [[nodiscard]] at::Tensor take() const;
};

}  // namespace chimera
