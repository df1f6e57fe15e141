#include "schedule/op.h"

#include <string_view>

namespace chimera {

namespace {

constexpr std::string_view kLetters = "FBIW";

}  // namespace

char letter(OpKind kind) { return kLetters[static_cast<std::size_t>(kind)]; }

std::optional<OpKind> op_kind(char letter) {
  const auto found = kLetters.find(letter);
  return found == kLetters.npos ? std::nullopt : std::optional(static_cast<OpKind>(found));
}

std::string to_text(const Op& op, std::int64_t slices) {
  std::string text = std::to_string(op.stage.value()) + letter(op.kind) + std::to_string(op.micro_batch.value());
  if (slices > 1 || op.slice != 0) text += "." + std::to_string(op.slice);
  return text;
}

}  // namespace chimera
