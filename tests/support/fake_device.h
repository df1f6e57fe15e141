#pragma once
// A device that works in streams, as a GPU does, and is none: its tensors lie in the CPU's memory and its kernels are
// the CPU's, run at once. It writes down what streams are told, and what makes the host wait.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "transport/recorder.h"

namespace chimera::testing {

inline constexpr auto kFakeDevice = c10::DeviceType::PrivateUse1;

/// What the streams of the device were told, and where the host waited for it. One for the process; for the first it is
/// enough to name the device, the rest needs install().
class FakeDevice {
 public:
  static FakeDevice& get();

  /// Makes it the accelerator of this process, with kernels and pinned memory. Nothing undoes that.
  static void install();

  /// Forgets everything, and numbers streams and events from 1 again.
  void clear();

  /// "stream 1 records event 1", "stream 2 awaits event 1", "memory is kept for stream 2".
  std::vector<std::string> lines();
  /// Calls that made the host wait: reading an element, copies that are not asynchronous, or only seem to be as their
  /// memory is not pinned, ops whose result depends on values; and looking at one event again and again before the
  /// device is given more. (Before one of the others that is the same wait.)
  std::vector<std::string> waits();
  /// The events up to this one are done, later ones are not. Without it all are.
  void finish_events_up_to(std::intptr_t event);
  /// Kernels and copies that the host has given it, or recorded.
  std::int64_t given_count();
  /// As a graph of CUDA: what the calling thread's current stream is given meanwhile is done again, kernel by kernel on
  /// the same memory, by repeat(). As strict: throws where the work waits for the device, copies from the host's
  /// memory, or looks at an event of the recording; or waits for one that was recorded before. Unlike CUDA it does all
  /// of it at once while it records; so the first repeat(), which must come before anything else, does nothing.
  std::unique_ptr<RecordedWork> record(const std::function<void()>& work);
  /// The calling thread's stream's recording: takes what is to be done again. Null where there is none.
  using Recording = std::vector<std::function<void()>>;
  Recording* recording();
  /// While it lives, the calling thread records nothing.
  class Unrecorded {
   public:
    Unrecorded();
    Unrecorded(const Unrecorded&) = delete;
    Unrecorded& operator=(const Unrecorded&) = delete;
    ~Unrecorded();
  };
  /// From now on to clear() each event is found done by the second look at it, as by a host that is ahead.
  void answer_late();

  // for the device's own parts
  void told(std::string line);
  void waited(std::string what);
  std::intptr_t next_event();
  c10::StreamId next_stream();
  bool is_done(std::intptr_t event);
  void looked_at(std::intptr_t event);
  void given();  // something to do
  void recorded(std::intptr_t event, c10::StreamId stream);
  void awaited(std::intptr_t event, c10::StreamId stream);

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::vector<std::string> waits_;
  std::intptr_t events_ = 0;
  std::intptr_t done_up_to_ = std::numeric_limits<std::intptr_t>::max();
  bool answers_late_ = false;
  std::set<std::intptr_t> looked_at_;
  c10::StreamId streams_ = 0;
  std::int64_t given_count_ = 0;
  std::map<c10::StreamId, std::shared_ptr<Recording>> recordings_;  // under way
  std::set<std::intptr_t> events_of_recordings_;
};

/// The calling thread's current stream.
[[nodiscard]] c10::StreamId current_fake_stream();

}  // namespace chimera::testing
