#include "schedule/op.h"

namespace chimera {

char letter(OpKind kind) { return "FBIW"[static_cast<std::size_t>(kind)]; }

std::optional<OpKind> op_kind(char letter) {
  switch (letter) {
    case 'F': return OpKind::Forward;
    case 'B': return OpKind::Backward;
    case 'I': return OpKind::BackwardInput;
    case 'W': return OpKind::BackwardWeight;
    default: return std::nullopt;
  }
}

std::string to_text(const Op& op, std::int64_t slices) {
  std::string text = std::to_string(op.stage.value()) + letter(op.kind) + std::to_string(op.micro_batch.value());
  if (slices > 1 || op.slice != 0) text += "." + std::to_string(op.slice);
  return text;
}

}  // namespace chimera
