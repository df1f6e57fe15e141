#include "train/recover/final_error.h"

#include <array>
#include <exception>

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

double sum_in_agreement(Transport& transport, const std::function<double()>& act) {
  // A rank that throws alone would leave the others waiting for it, so all ranks learn of a failure before any goes on.
  std::array<double, 2> failures_and_number{};
  std::exception_ptr failure;
  try {
    failures_and_number[1] = act();
  } catch (...) {
    failure = std::current_exception();
    failures_and_number[0] = 1;
  }
  transport.all_sum(failures_and_number);
  if (failure) std::rethrow_exception(failure);
  if (failures_and_number[0] > 0) throw PeerFinalError("another rank could not write its part");
  return failures_and_number[1];
}

}  // namespace chimera
