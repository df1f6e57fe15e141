#include "transport/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "core/reject.h"

namespace chimera {
namespace {

std::vector<std::string> differing_parts(const Fingerprint& own, const FingerprintWords& other) {
  const FingerprintWords mine = to_words(own);
  if (mine[1] != other[1]) return {own.front().name};  // other parts may differ between builds
  std::vector<std::string> names;
  for (std::size_t part = 1; part < own.size(); ++part)
    if (mine[part + 1] != other[part + 1]) names.push_back(own[part].name);
  return names;
}

}  // namespace

FingerprintWords to_words(const Fingerprint& fingerprint) {
  if (fingerprint.size() > kFingerprintParts) throw std::logic_error("a fingerprint has at most 63 parts");
  FingerprintWords words(1 + kFingerprintParts, 0);
  words[0] = static_cast<std::int64_t>(fingerprint.size());
  for (std::size_t part = 0; part < fingerprint.size(); ++part)
    words[part + 1] = static_cast<std::int64_t>(fingerprint[part].hash);
  return words;
}

// The majority is right: one rank with other options is a mistake of that rank, and its user needs the name of the
// option.
void require_equal(const Fingerprint& own, const std::vector<FingerprintWords>& of_ranks, int rank) {
  const auto frequency = [&](const FingerprintWords& words) { return std::ranges::count(of_ranks, words); };
  const FingerprintWords& right = *std::ranges::max_element(of_ranks, {}, frequency);
  std::vector<std::size_t> others;
  for (std::size_t r = 0; r < of_ranks.size(); ++r)
    if (of_ranks[r] != right) others.push_back(r);
  if (others.empty()) return;
  // This rank is started as most others. Its user needs to know which rank is not; that rank names the settings.
  if (of_ranks[static_cast<std::size_t>(rank)] == right)
    throw PeerLostError(fmt::format("rank {}: rank {} was started differently", rank, fmt::join(others, ", ")));
  const auto parts = differing_parts(own, right);
  reject("this rank differs from rank {} in {}; start every rank from the same program with the same options",
         std::ranges::find(of_ranks, right) - of_ranks.begin(), fmt::join(parts, " and "));
}

}  // namespace chimera
