#pragma once
// Operations over Gloo, and why they failed, in words.

#include <cstdint>
#include <exception>
#include <string>

namespace chimera {

enum class OperationKind { Send, Receive, AllReduce, AllGather };

struct Operation {
  OperationKind kind;
  std::int64_t other;  // the other rank, or the stage
};

/// `rank 1: receive from rank 0`.
[[nodiscard]] std::string to_text(int rank, const Operation& operation);

/// Throws the error for a failure of `operation` ("rank 1: receive from rank 0"). Gloo reports a broken connection and
/// a wait that ran out by the same type, and c10d wraps what happens while connecting: only the text tells them apart.
[[noreturn]] void rethrow_gloo(const std::string& operation, const std::exception& error);

}  // namespace chimera
