#include "support/logging_transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

std::string describe(at::IntArrayRef sizes, at::ScalarType dtype) {
  return fmt::format("[{}] {}", fmt::join(sizes, ", "), c10::toString(dtype));
}

}  // namespace

class LoggingTransport::LoggedCall final : public Pending {
 public:
  /// wait() throws `missing`; if it is empty, wait() returns `result`.
  LoggedCall(LoggingTransport& transport, std::string operation, at::Tensor result, std::string missing = {})
      : transport_(transport),
        operation_(std::move(operation)),
        result_(std::move(result)),
        missing_(std::move(missing)) {}

  at::Tensor wait() override {
    transport_.lines_.push_back("wait " + operation_);
    if (!missing_.empty()) throw PeerLostError(operation_ + ": " + missing_);
    return result_;
  }

 private:
  LoggingTransport& transport_;
  std::string operation_;
  at::Tensor result_;
  std::string missing_;
};

std::unique_ptr<Pending> LoggingTransport::start_send(RankId to, at::Tensor tensor, const MessageTag&) {
  std::string operation = fmt::format("send to {}", to.value());
  lines_.push_back(operation + ": " + describe(tensor.sizes(), tensor.scalar_type()));
  sent_[to].push_back(std::move(tensor));
  return std::make_unique<LoggedCall>(*this, std::move(operation), at::Tensor());
}

std::unique_ptr<Pending> LoggingTransport::post_receive(RankId from, const TensorSpec& spec, const MessageTag&) {
  std::string operation = fmt::format("receive from {}", from.value());
  lines_.push_back(operation + ": " + describe(spec.sizes, spec.dtype));
  auto& messages = primed_[from];
  if (messages.empty()) {
    return std::make_unique<LoggedCall>(*this, std::move(operation), at::Tensor(), "no message was primed");
  }
  at::Tensor message = std::move(messages.front());
  messages.pop();
  return std::make_unique<LoggedCall>(*this, std::move(operation), std::move(message));
}

std::unique_ptr<Pending> LoggingTransport::start_all_reduce(ParameterGroupId group, at::Tensor gradients) {
  std::string operation = fmt::format("all-reduce stage {}", group.value());
  lines_.push_back(operation + ": " + describe(gradients.sizes(), gradients.scalar_type()));
  return std::make_unique<LoggedCall>(*this, std::move(operation), std::move(gradients));
}

std::unique_ptr<Pending> LoggingTransport::start_ordered_all_reduce(ParameterGroupId group, at::Tensor gradients,
                                                                    std::vector<at::Tensor> parts, const SumOrder&) {
  std::string operation = fmt::format("ordered all-reduce stage {}", group.value());
  lines_.push_back(
      fmt::format("{}: {} parts of {}", operation, parts.size(), describe(gradients.sizes(), gradients.scalar_type())));
  for (const at::Tensor& part : parts) gradients.add_(part);
  return std::make_unique<LoggedCall>(*this, std::move(operation), std::move(gradients));
}

std::unique_ptr<Pending> LoggingTransport::start_reduce_scatter(ParameterGroupId group, at::Tensor gradients,
                                                                std::vector<at::Tensor> parts, const SumOrder*,
                                                                const std::vector<std::int64_t>& counts) {
  std::string operation = fmt::format("reduce-scatter stage {}", group.value());
  lines_.push_back(fmt::format("{}: {} of {}", operation, fmt::join(counts, " + "),
                               describe(gradients.sizes(), gradients.scalar_type())));
  for (const at::Tensor& part : parts) gradients.add_(part);
  return std::make_unique<LoggedCall>(*this, std::move(operation), std::move(gradients));
}

std::unique_ptr<Pending> LoggingTransport::start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                                            const std::vector<std::int64_t>& counts) {
  std::string operation = fmt::format("all-gather stage {}", group.value());
  lines_.push_back(
      fmt::format("{}: {} of {}", operation, fmt::join(counts, " + "), describe(buffer.sizes(), buffer.scalar_type())));
  return std::make_unique<LoggedCall>(*this, std::move(operation), std::move(buffer));
}

void LoggingTransport::all_sum(std::span<double> values) {
  lines_.push_back(fmt::format("all-sum: {}", values.size()));
}

}  // namespace chimera
