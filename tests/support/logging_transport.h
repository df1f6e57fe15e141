#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace chimera {

/// Transport without peers for tests. It logs the calls of a worker in order, a line each, for example
///   send to 1: [2, 3] Float         receive from 0: [2, 3] Float      all-reduce stage 1: [10] Double
///   wait send to 1                  wait receive from 0               wait all-reduce stage 1            all-sum: 2
/// It ignores tags. Sends complete at once; sums leave the buffers unchanged. It must outlive its operations.
class LoggingTransport : public Transport {
 public:
  /// Queues the message that the next receive from `from` returns.
  void prime(RankId from, at::Tensor message) { primed_[from].push(std::move(message)); }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  [[nodiscard]] const std::vector<at::Tensor>& sent(RankId to) { return sent_[to]; }

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override;
  /// Its wait() throws PeerLostError if no message was primed before.
  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override;
  /// Adds only this worker's parts.
  std::unique_ptr<Pending> start_sum(ParameterGroupId group, GradientSum sum) override;
  std::unique_ptr<Pending> start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override;
  void all_sum(std::span<double> values) override;

 private:
  class LoggedCall;
  std::vector<std::string> lines_;
  std::map<RankId, std::vector<at::Tensor>> sent_;
  std::map<RankId, std::queue<at::Tensor>> primed_;
};

}  // namespace chimera
