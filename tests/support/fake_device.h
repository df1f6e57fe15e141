#pragma once
// A fake asynchronous device: its tensors lie in the CPU's memory, and its kernels are the CPU's, run immediately. It
// records the calls to its streams and the calls that make the host wait.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/device_graph.h"

namespace chimera::testing {

inline constexpr auto kFakeDevice = c10::DeviceType::PrivateUse1;
inline constexpr c10::DeviceIndex kFakeDevices = 4;

/// Records of stream calls and host waits, one object per process. Without install(), tests may only name the device.
class FakeDevice {
 public:
  static FakeDevice& get();

  /// Makes it the accelerator of this process, with kernels and pinned memory. This cannot be undone.
  static void install();

  /// Whether the memory of a tensor comes from the device's allocator. If it does not, CUDA's recordStream() ignores
  /// it.
  static bool has_allocated(const at::Tensor& tensor);

  /// Blocks of pinned memory so far; to allocate one would wait for the device.
  static std::int64_t pinned_blocks();

  /// Clears all records, and numbers streams and events from 1 again.
  void clear();

  /// "stream 1 records event 1", "stream 2 awaits event 1", "memory is kept for stream 2".
  std::vector<std::string> lines() {
    return locked([&] { return lines_; });
  }
  /// Calls that made the host wait: reads of an element, ops with a result that depends on values, and synchronous
  /// copies. Copies of memory that is not pinned are synchronous too. Repeated queries of an event also count, unless
  /// the host issues work between them or another wait follows.
  std::vector<std::string> waits() {
    return locked([&] { return waits_; });
  }
  /// Events up to this number are done, later events are not. Without this call all events are done.
  void finish_events_up_to(std::intptr_t event) {
    locked([&] { done_up_to_ = event; });
  }
  /// Number of kernels and copies that the host has issued or recorded.
  std::int64_t given_count() {
    return locked([&] { return given_count_; });
  }
  /// Names of the ops that launch kernels on a GPU, once per kernel of torch 2.11 there, since clear(). Views and
  /// allocations launch none.
  std::vector<std::string> kernels() {
    return locked([&] { return kernels_; });
  }
  /// Imitates a CUDA graph: repeat() runs the kernels that `work` gives to the calling thread's current stream again,
  /// on the same memory. Like CUDA it throws if the work waits for the device, copies from host memory, queries an
  /// event of the recording, waits for an event recorded before, or draws from a generator that is not in `generators`.
  /// Unlike CUDA it also runs the work while it records. The first repeat(), which must come before anything else,
  /// therefore does nothing.
  std::unique_ptr<DeviceGraph> record(const std::function<void()>& work,
                                      const std::vector<at::Generator>& generators = {});
  /// The recording of the calling thread's stream, to which repeatable work is appended; null if there is none.
  using Recording = std::vector<std::function<void()>>;
  Recording* recording();
  /// Number, from 1, of this recording among those of its stream; 0 if there is none.
  int recording_number();
  /// While it exists, the calling thread records nothing.
  class Unrecorded {
   public:
    Unrecorded();
    Unrecorded& operator=(Unrecorded&&) = delete;
    ~Unrecorded();
  };
  /// Until clear(), calls `wait` at the first use of an op with inputs of these types and sizes on each stream: CUDA
  /// may then wait until the whole device is idle. Each stream stands for a device; stream 0 does not count.
  using DeviceWait = std::function<void(c10::StreamId stream, const std::string& use)>;
  void wait_at_first_uses(DeviceWait wait) {
    locked([&] { wait_at_first_use_ = std::move(wait); });
  }
  /// Until clear(), each event is found done only at its second query, as if the host were ahead of the device.
  void answer_late() {
    locked([&] { answers_late_ = true; });
  }

  // for the device's own parts
  void told(std::string line) {
    locked([&] { lines_.push_back(std::move(line)); });
  }
  void waited(std::string what);
  std::intptr_t next_event() {
    return locked([&] { return ++events_; });
  }
  c10::StreamId next_stream() {
    return locked([&] { return ++streams_; });
  }
  bool is_done(std::intptr_t event);
  void looked_at(std::intptr_t event);
  void given();  // counts one kernel or copy
  void launched(const std::string& op, int kernels) {
    locked([&] { kernels_.insert(kernels_.end(), static_cast<std::size_t>(kernels), op); });
  }
  void recorded(std::intptr_t event, c10::StreamId stream, bool has_time);
  double time_of(std::intptr_t event);  // seconds; throws unless a wait or query has proven that the event is done
  void awaited(std::intptr_t event, c10::StreamId stream);
  void used(const std::string& op, const std::vector<at::Tensor>& inputs);
  void draws_from(const at::Generator& generator);

 private:
  /// Calls `access` under the lock.
  template <class Access>
  auto locked(const Access& access) -> decltype(access()) {
    const std::scoped_lock lock(mutex_);
    return access();
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::vector<std::string> waits_;
  std::intptr_t events_ = 0;
  std::intptr_t done_up_to_ = std::numeric_limits<std::intptr_t>::max();
  bool answers_late_ = false;
  std::intptr_t known_done_ = 0;
  std::map<std::intptr_t, double> times_;
  std::set<std::intptr_t> looked_at_;
  c10::StreamId streams_ = 0;
  std::int64_t given_count_ = 0;
  std::vector<std::string> kernels_;
  std::map<c10::StreamId, std::shared_ptr<Recording>> recordings_;  // active recordings
  std::map<c10::StreamId, int> recordings_begun_;
  std::map<c10::StreamId, std::vector<at::Generator>> registered_;  // with active recordings
  std::set<std::intptr_t> events_of_recordings_;
  DeviceWait wait_at_first_use_;
  std::set<std::pair<c10::StreamId, std::string>> used_;
};

/// The calling thread's current stream.
[[nodiscard]] c10::StreamId current_fake_stream();

}  // namespace chimera::testing
