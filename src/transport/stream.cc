#include "transport/stream.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <thread>
#include <utility>

#include "core/clock.h"

namespace chimera {
namespace {

bool has_streams(at::Device device) { return !device.is_cpu(); }

/// Returns a stream from the pool of the device, which becomes the thread's; nothing on the CPU.
std::optional<c10::Stream> pooled_stream(at::Device device) {
  if (!has_streams(device)) return std::nullopt;
  const c10::impl::VirtualGuardImpl streams(device.type());
  streams.setDevice(device);
  return streams.getStreamFromGlobalPool(device);
}

c10::Stream current_stream(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

StreamMark::StreamMark(at::Device device) {
  if (!has_streams(device)) return;
  event_ = std::make_shared<c10::Event>(device.type());
  event_->record(current_stream(device));
}

void StreamMark::await() const {
  if (event_) event_->block(current_stream(event_->device()));
}

TimeMark::TimeMark(at::Device device) {
  if (!has_streams(device)) {
    host_seconds_ = monotonic_seconds();
    return;
  }
  event_ = std::make_shared<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // with a time
  event_->record(current_stream(device));
}

double TimeMark::seconds_since(const TimeMark& earlier) const {
  if (!event_) return host_seconds_ - earlier.host_seconds_;
  // Event::elapsedTime() would query both events first.
  const c10::impl::VirtualGuardImpl device(event_->device_type());
  return 1e-3 * device.elapsedTime(earlier.event_->eventId(), event_->eventId(), event_->device_index());
}

void TimedWork::note(const TimeMark& begin, at::Device device, Add add) {
  pieces_.push_back({begin, TimeMark(device), std::move(add)});
  if (!has_streams(device)) read();
}

void TimedWork::read() {
  for (const Piece& piece : pieces_) piece.add(piece.end.seconds_since(piece.begin));
  pieces_.clear();
}

void poll_until(const std::function<bool()>& is_done, const std::function<void()>& check) {
  // The runtime could wait for an event without polling, but then `check` could not end the wait.
  constexpr std::chrono::microseconds kPause{100};
  constexpr std::chrono::seconds kBetweenChecks{1};
  auto next_check = std::chrono::steady_clock::now();
  while (!is_done()) {
    if (check && std::chrono::steady_clock::now() >= next_check) {
      check();
      next_check += kBetweenChecks;
    }
    std::this_thread::sleep_for(kPause);
  }
}

void await_device(at::Device device) {
  if (has_streams(device)) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

void use_on_current_stream(const at::Tensor& tensor) {
  if (has_streams(tensor.device())) tensor.record_stream(current_stream(tensor.device()));
}

PooledStreamGuard::PooledStreamGuard(at::Device device) : OptionalStreamGuard(pooled_stream(device)) {}

SideStream::SideStream(at::Device device) : device_(device), stream_(pooled_stream(device)) {}

StreamMark SideStream::run(const StreamMark& begin, const std::function<void()>& work) const {
  const c10::OptionalStreamGuard guard(stream_);
  // The side stream waits for `begin`, not the thread.
  begin.await();
  work();
  return StreamMark(device_);
}

at::Tensor Handover::take() const {
  if (!tensor.defined()) return {};
  ready.await();
  // The tensor was allocated on the other thread's stream. Without the note, the allocator could give its memory to new
  // work of that stream while this stream still reads it.
  use_on_current_stream(tensor);
  return tensor;
}

}  // namespace chimera
