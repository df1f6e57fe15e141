#pragma once
// A worker's end with nobody at the other: it writes down what is asked of it. For tests of what uses a Transport.

#include <map>
#include <queue>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace chimera {

/// Records the calls of one worker, in order, one line each, for example
///   send to 1: [2, 3] Float         receive from 0: [2, 3] Float      all-reduce stage 1: [10] Double
///   wait send to 1                  wait receive from 0               wait all-reduce stage 1            all-sum: 2
/// Tags are not looked at. Sends are done at once; sums leave the buffers as they are, as for a worker alone. It must
/// outlive what it started.
class Recorder final : public Transport {
 public:
  /// Gives the next message that will arrive from `from`.
  void prime(WorkerId from, at::Tensor message) { primed_[from].push(std::move(message)); }
  /// The lines so far.
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  /// What was sent to a worker, in order.
  [[nodiscard]] const std::vector<at::Tensor>& sent(WorkerId to) { return sent_[to]; }

  std::unique_ptr<Pending> start_send(WorkerId to, at::Tensor tensor, const MessageTag& tag) override;
  /// Its wait() throws PeerLostError where the message was not primed before the receive was posted.
  std::unique_ptr<Pending> post_receive(WorkerId from, const TensorSpec& spec, const MessageTag& tag) override;
  std::unique_ptr<Pending> start_all_reduce(StageId stage, at::Tensor gradients) override;
  /// Adds this worker's parts alone.
  std::unique_ptr<Pending> start_ordered_all_reduce(StageId stage, at::Tensor gradients, std::vector<at::Tensor> parts,
                                                    const SumOrder& order) override;
  /// Leaves the buffer as it is.
  std::unique_ptr<Pending> start_all_gather(StageId stage, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override;
  void all_sum(std::span<double> values) override;

 private:
  class Recorded;
  std::vector<std::string> lines_;
  std::map<WorkerId, std::vector<at::Tensor>> sent_;
  std::map<WorkerId, std::queue<at::Tensor>> primed_;
};

}  // namespace chimera
