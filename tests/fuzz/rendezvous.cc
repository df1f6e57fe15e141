// Fuzzes a rank's request to the rendezvous server, and the reply.

#include "fuzz/fuzzer.h"
#include "rendezvous/server.h"

namespace chimera::testing {
namespace {

void exercise_rendezvous(std::string_view bytes) {
  try {
    Request request = read_request(bytes);
    request.timeout = std::chrono::milliseconds(0);
    require(to_bytes(read_request(to_bytes(request))) == to_bytes(request), "what was read can be written and read");
    const Answer said = KeyValueStore().answer(request);
    require(to_bytes(read_answer(to_bytes(said))) == to_bytes(said), "so can its answer");
  } catch (const ChannelError&) {
  }
  try {
    static_cast<void>(read_answer(bytes));
  } catch (const ChannelError&) {
  }
}

}  // namespace

const Fuzzer kRendezvous("rendezvous", exercise_rendezvous);

}  // namespace chimera::testing
