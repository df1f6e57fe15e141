#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "transport/transport.h"

// Work for a device that is recorded once and then given to it as a whole: a CUDA graph.

// A transport with nobody at the other end, which records the calls made to it: for tests of a Transport's users.

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

/// Records the calls of one worker, in order, one line each, for example
///   send to 1: [2, 3] Float         receive from 0: [2, 3] Float      all-reduce stage 1: [10] Double
///   wait send to 1                  wait receive from 0               wait all-reduce stage 1            all-sum: 2
/// Tags are not looked at. Sends are done at once; sums leave the buffers as they are, as for a worker alone. It must
/// outlive what it started.
class Recorder final : public Transport {
 public:
  /// Gives the next message that will arrive from `from`.
  void prime(RankId from, at::Tensor message) { primed_[from].push(std::move(message)); }
  /// The lines so far.
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  /// What was sent to a worker, in order.
  [[nodiscard]] const std::vector<at::Tensor>& sent(RankId to) { return sent_[to]; }

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override;
  /// Its wait() throws PeerLostError where the message was not primed before the receive was posted.
  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override;
  std::unique_ptr<Pending> start_all_reduce(ParameterGroupId group, at::Tensor gradients) override;
  /// Adds this worker's parts alone.
  std::unique_ptr<Pending> start_ordered_all_reduce(ParameterGroupId group, at::Tensor gradients,
                                                    std::vector<at::Tensor> parts, const SumOrder& order) override;
  /// Leaves the buffer as it is.
  std::unique_ptr<Pending> start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override;
  void all_sum(std::span<double> values) override;

 private:
  class Recorded;
  std::vector<std::string> lines_;
  std::map<RankId, std::vector<at::Tensor>> sent_;
  std::map<RankId, std::queue<at::Tensor>> primed_;
};

}  // namespace chimera
