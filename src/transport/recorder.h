#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace chimera {

/// Recorded device work, such as a CUDA graph. It owns the tensors created during recording, which hold the last
/// repetition's values.
class RecordedWork {
 public:
  RecordedWork() = default;
  RecordedWork(const RecordedWork&) = delete;
  RecordedWork& operator=(const RecordedWork&) = delete;
  virtual ~RecordedWork() = default;
  /// Enqueues the work on the current stream. Host values (numbers, sizes, addresses) stay as recorded.
  virtual void repeat() = 0;
  /// Returns what repeat() enqueues: names of kernels, "copy" or "fill"; empty if unknown.
  [[nodiscard]] virtual std::vector<std::string> kernels() const { return {}; }
};

/// Calls a function and records, without running it, the work on the current stream and streams joined with it. Throws
/// Error if the function waits for the device.
using RecordWork = std::function<std::unique_ptr<RecordedWork>(const std::function<void()>& work)>;

/// Transport without peers for tests. It records the calls of a worker in order, a line each, for example
///   send to 1: [2, 3] Float         receive from 0: [2, 3] Float      all-reduce stage 1: [10] Double
///   wait send to 1                  wait receive from 0               wait all-reduce stage 1            all-sum: 2
/// It ignores tags. Sends complete at once; sums leave the buffers unchanged. It must outlive its operations.
class Recorder final : public Transport {
 public:
  /// Queues the message that the next receive from `from` returns.
  void prime(RankId from, at::Tensor message) { primed_[from].push(std::move(message)); }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  [[nodiscard]] const std::vector<at::Tensor>& sent(RankId to) { return sent_[to]; }

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override;
  /// Its wait() throws PeerLostError if no message was primed before.
  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override;
  std::unique_ptr<Pending> start_all_reduce(ParameterGroupId group, at::Tensor gradients) override;
  /// Adds only this worker's parts.
  std::unique_ptr<Pending> start_ordered_all_reduce(ParameterGroupId group, at::Tensor gradients,
                                                    std::vector<at::Tensor> parts, const SumOrder& order) override;
  std::unique_ptr<Pending> start_reduce_scatter(ParameterGroupId group, at::Tensor gradients,
                                                std::vector<at::Tensor> parts, const SumOrder* order,
                                                const std::vector<std::int64_t>& counts) override;
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
