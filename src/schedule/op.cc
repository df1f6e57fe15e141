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
  // A slice other than 0 is written even if the caller does not pass the number of slices: two ops never have equal
  // texts.
  if (slices > 1 || op.slice != 0) text += "." + std::to_string(op.slice);
  return text;
}

}  // namespace chimera
