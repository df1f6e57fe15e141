#include "transport/pairs/communicator_ids.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/error.h"
#include "rendezvous/address.h"

namespace chimera {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kWordsBytes = (1 + kFingerprintParts) * sizeof(std::int64_t);

std::string key_of(int rank) { return fmt::format("attendee {}", rank); }

FingerprintWords words_of(const Fingerprint& fingerprint) {
  return fingerprint.empty() ? FingerprintWords(1 + kFingerprintParts, 0) : to_words(fingerprint);
}

Bytes written(const Attendee& attendee) {
  const FingerprintWords words = words_of(attendee.fingerprint);
  const std::string text = std::string(reinterpret_cast<const char*>(words.data()), kWordsBytes) + attendee.gpu;
  return {text.begin(), text.end()};
}

/// The GPU that the bytes name; their words are put where they belong.
std::string read(const Bytes& bytes, FingerprintWords& words) {
  if (bytes.size() < kWordsBytes)
    throw TransportError("a rank of another build says what this one does not understand");
  words.resize(1 + kFingerprintParts);
  std::memcpy(words.data(), bytes.data(), kWordsBytes);
  return {bytes.begin() + kWordsBytes, bytes.end()};
}

void require_own_gpu(const std::vector<std::string>& gpus, int rank) {
  std::vector<int> sharing;
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    if (!gpus[r].empty() && std::ranges::count(gpus, gpus[r]) > 1) sharing.push_back(static_cast<int>(r));
  }
  if (sharing.empty()) return;
  const bool is_own = std::ranges::count(sharing, rank) > 0;
  const std::string what = fmt::format("ranks {} do not have a GPU each", fmt::join(sharing, ", "));
  if (!is_own) throw PeerLostError(what);
  throw ConfigError(what + "; start as many processes on a host as it has GPUs, and show each all of them or its own");
}

}  // namespace

void compare_attendees(c10d::Store& store, const Attendee& own, int world_size) {
  store.set(key_of(own.rank), written(own));
  std::vector<FingerprintWords> words(static_cast<std::size_t>(world_size));
  std::vector<std::string> gpus;
  for (int rank = 0; rank < world_size; ++rank) {
    gpus.push_back(read(store.get(key_of(rank)), words[static_cast<std::size_t>(rank)]));
  }
  if (!own.fingerprint.empty()) require_equal(own.fingerprint, words, own.rank);
  require_own_gpu(gpus, own.rank);
}

int least_of_all(c10d::Store& store, int rank, int number, int world_size) {
  const auto key = [](int of) { return fmt::format("number {}", of); };
  const std::string own = std::to_string(number);
  store.set(key(rank), Bytes(own.begin(), own.end()));
  for (int other = 0; other < world_size; ++other) {
    const Bytes text = store.get(key(other));
    number = std::min(number, std::stoi(std::string(text.begin(), text.end())));
  }
  return number;
}

VariableList cuda_variables() {
  return {{"CUDA_MODULE_LOADING", "EAGER"},
          // Streams beyond this number share hardware queues, where a receive that waits would hold others back.
          {"CUDA_DEVICE_MAX_CONNECTIONS", "32"}};
}

VariableList nccl_variables(const MeetingPoint& meeting) {
  const std::string interface = meeting.host.empty() ? "lo" : own_interface(meeting);
  return {{"NCCL_SOCKET_IFNAME", "=" + interface},  // this one, not those whose names begin so
          {"NCCL_RAS_ENABLE", "0"},                 // one more port, which answers anyone
          // Else rings and trees are connected at the first collective that takes them, which size decides, and the
          // thread that calls it waits for the other members.
          {"NCCL_RUNTIME_CONNECT", "0"},
          // c10d would say of each rank's first message that it waits for others of its communicator.
          {"TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "0"}};
}

void set_unless_set(const VariableList& variables) {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
}

}  // namespace chimera
