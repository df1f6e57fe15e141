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
  if (messages.empty())
    return std::make_unique<LoggedCall>(*this, std::move(operation), at::Tensor(), "no message was primed");
  at::Tensor message = std::move(messages.front());
  messages.pop();
  return std::make_unique<LoggedCall>(*this, std::move(operation), std::move(message));
}

std::unique_ptr<Pending> LoggingTransport::start_sum(ParameterGroupId group, GradientSum sum) {
  const char* ordered = sum.order != nullptr && !sum.scatters() ? "ordered " : "";
  std::string operation = fmt::format("{}{} stage {}", ordered, sum.name(), group.value());
  const std::string tensor = describe(sum.gradients.sizes(), sum.gradients.scalar_type());
  if (sum.scatters()) {
    lines_.push_back(fmt::format("{}: {} of {}", operation, fmt::join(sum.counts, " + "), tensor));
  } else if (sum.order != nullptr) {
    lines_.push_back(fmt::format("{}: {} parts of {}", operation, sum.parts.size(), tensor));
  } else {
    lines_.push_back(fmt::format("{}: {}", operation, tensor));
  }
  for (const at::Tensor& part : sum.parts) sum.gradients.add_(part);
  return std::make_unique<LoggedCall>(*this, std::move(operation), std::move(sum.gradients));
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
