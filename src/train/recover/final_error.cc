#include "train/recover/final_error.h"

#include <array>

namespace chimera {

void fail_on_all_ranks(const std::string& why, bool is_own, Transport& transport) {
  if (is_own) throw FinalError(why);
  // The launcher takes the first rank that exits for the culprit, so the others must not be first.
  std::array<double, 1> nothing{};
  try {
    transport.all_sum(nothing);  // Fails when the reporting rank exits: no rank exits earlier
  } catch (const TransportError&) {
  }
  throw PeerFinalError(why);
}

}  // namespace chimera
