#pragma once
// What a rank asks of the words at a meeting, as it travels: CBOR (RFC 8949).

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/key_value_store.h"

namespace chimera {

enum class RequestKind : std::uint8_t { Set, Get, Add, Remove, Count, Check, Wait };

struct Request {
  RequestKind kind = RequestKind::Count;
  std::vector<std::string> names = {};   ///< one; several for Check and Wait; none for Count
  std::string value = {};                ///< Set
  std::int64_t number = 0;               ///< Add
  std::chrono::milliseconds timeout{0};  ///< Get and Wait, which wait for what is not there yet
};

struct Answer {
  bool is_there = false;  ///< Get, Check, Wait: all that was asked for; Remove: it was
  std::string value = {};
  std::int64_t number = 0;  ///< Add: the sum; Count
};

[[nodiscard]] std::string to_bytes(const Request& request);
[[nodiscard]] std::string to_bytes(const Answer& answer);
/// Throws ChannelError where the bytes are none.
[[nodiscard]] Request read_request(std::string_view bytes);
[[nodiscard]] Answer read_answer(std::string_view bytes);

/// Does what is asked, and waits for it.
[[nodiscard]] Answer answer(Words& words, const Request& request);

}  // namespace chimera
