#include "transport/gloo/errors.h"

#include <fmt/format.h>

#include <string_view>

#include "core/error.h"
#include "transport/gloo/group.h"

namespace chimera {
namespace {

constexpr std::string_view kConnectFailed = "Gloo connectFullMesh failed with ";

/// One line, without the place in Gloo's source that its messages begin with: "[/path/pair.cc:81] Connection closed".
std::string reason(std::string text) {
  text = text.substr(0, text.find('\n'));
  if (text.starts_with(kConnectFailed)) text.erase(0, kConnectFailed.size());
  const auto end_of_place = text.find("] ");
  if (text.starts_with('[') && end_of_place != std::string::npos) text.erase(0, end_of_place + 2);
  return text;
}

}  // namespace

std::string to_text(int rank, const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::Send: return fmt::format("rank {}: send to rank {}", rank, operation.other);
    case OperationKind::Receive: return fmt::format("rank {}: receive from rank {}", rank, operation.other);
    case OperationKind::AllReduce: return fmt::format("rank {}: all-reduce of stage {}", rank, operation.other);
    case OperationKind::AllGather: return fmt::format("rank {}: all-gather of stage {}", rank, operation.other);
  }
  return {};
}

void rethrow_gloo(const std::string& operation, const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
  const bool by_gloo = dynamic_cast<const gloo::IoException*>(&error) != nullptr || text.starts_with(kConnectFailed);
  const bool ran_out = text.find("Timed out") != std::string::npos || text.find("timeout") != std::string::npos;
  const std::string message = fmt::format("{}: {}", operation, reason(text));
  if (by_gloo && !ran_out) throw PeerLostError(message);
  throw TransportError(message);
}

}  // namespace chimera
