#pragma once
// Threads that share a device which works in streams, as CUDA does: what one thread's stream makes, another's must wait
// for, and memory must not be given away while any of them uses it. Nothing here needs CUDA; on the CPU all is empty.

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <functional>
#include <memory>
#include <optional>

namespace chimera {

/// A point in the work that a thread has given to its current stream.
class StreamMark {
 public:
  StreamMark() = default;
  /// Marks the present point of the calling thread's current stream of `device`.
  explicit StreamMark(at::Device device);
  /// Makes the calling thread's current stream wait until the marked one has come here. The thread itself goes on.
  void await() const;
  /// Whether the marked stream has come here. Nobody waits.
  [[nodiscard]] bool is_reached() const { return event_ == nullptr || event_->query(); }

 private:
  std::shared_ptr<c10::Event> event_;  // none on the CPU
};

/// Keeps the memory of `tensor`, which another thread's stream has made, until the calling thread's current stream has
/// done what it was given so far, even where nobody holds the tensor any longer.
void use_on_current_stream(const at::Tensor& tensor);

/// While it lives, the calling thread gives its work to a stream of its own from the pool of `device`. Backward runs on
/// the stream of its forward, also where autograd's thread of that device executes it.
class OwnStream {
 public:
  explicit OwnStream(at::Device device);

 private:
  std::optional<c10::StreamGuard> guard_;
};

/// A stream of its own for a rank that a caller has work now and then: always the same one, as torch keeps memory for
/// each stream.
class RankStream {
 public:
  explicit RankStream(at::Device device);
  /// Runs `work` on this stream, once that has come to `begin`. Returns the mark of its end.
  StreamMark run(const StreamMark& begin, const std::function<void()>& work) const;

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // none on the CPU
};

/// A tensor that one thread hands to another.
struct Handover {
  at::Tensor tensor;
  StreamMark ready;

  Handover() = default;
  /// To be called by the thread that made the tensor.
  explicit Handover(at::Tensor made) : tensor(std::move(made)), ready(tensor.device()) {}
  /// To be called by the thread that uses the tensor; undefined where there is none.
  [[nodiscard]] at::Tensor take() const;
};

}  // namespace chimera
