#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/choices.h"
#include "core/files.h"
#include "core/reject.h"
#include "data/permutation.h"

namespace chimera {
namespace {

bool is_weighted(std::string_view word) {
  const std::size_t colon = word.find(':');
  // Digits and signs up to the colon: `0.7:a` has a weight, `C:/a` and `s3:a` have none.
  return colon != word.npos && colon > 0 && word.find_first_not_of("0123456789.+-eE") >= colon;
}

MixtureEntry weighted(std::string_view word) {
  const std::size_t colon = word.find(':');
  const std::string_view number = word.substr(0, colon);
  const auto weight = parse_number<double>(number);
  if (!weight || !std::isfinite(*weight) || *weight <= 0)
    reject("{} is not a weight of a mixture; expected a number above 0, as in 0.7:a 0.3:b", number);
  return {*weight, std::string(word.substr(colon + 1))};
}

}  // namespace

std::vector<MixtureEntry> parse_mixture(const std::string& text) {
  if (path_exists(text) || !is_weighted(text.substr(0, text.find(' ')))) return {{1, text}};
  std::vector<MixtureEntry> entries;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    const std::string_view word = std::string_view(text).substr(start, end - start);
    if (is_weighted(word))
      entries.push_back(weighted(word));
    else if (!word.empty())
      entries.back().path += " " + std::string(word);  // part of a name with blanks
    start = end + 1;
  }
  for (const MixtureEntry& entry : entries)
    if (entry.path.empty()) reject("a mixture: a file is missing after {:g}:", entry.weight);
  return entries;
}

Mixture::Mixture(const std::vector<MixtureEntry>& entries, std::uint64_t seed) : seed_(seed) {
  const double sum = std::accumulate(entries.begin(), entries.end(), 0.0,
                                     [](double all, const MixtureEntry& entry) { return all + entry.weight; });
  std::vector<std::int64_t> shares;
  std::vector<double> rests;
  for (const MixtureEntry& entry : entries) {
    // Of each block, rounded down here; the samples that rounding leaves go to the largest remainders below.
    const double share = entry.weight / sum * kMixtureBlock;
    shares.push_back(static_cast<std::int64_t>(share));
    rests.push_back(share - std::floor(share));
  }
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Largest remainders: rounding each share alone might not add up to a block.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rests[a] > rests[b]; });
  std::int64_t left = kMixtureBlock - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0; ++i, --left) ++shares[order[i % order.size()]];
  std::int64_t end = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] == 0)
      reject("a mixture: {} weighs {:g} of {:g}; the smallest share is one sample in {}", entries[i].path,
             entries[i].weight, sum, kMixtureBlock);
    // In a block of 10,000 slots, `0.7:a 0.3:b` gives a the slots 0 to 6999 and b the others.
    ends_.push_back(end += shares[i]);
  }
}

std::vector<std::int64_t> Mixture::shares() const {
  std::vector<std::int64_t> shares(ends_.size());
  std::adjacent_difference(ends_.begin(), ends_.end(), shares.begin());
  return shares;
}

Mixture::Place Mixture::place(std::int64_t position) const {
  if (ends_.size() == 1) return {0, position};
  const std::int64_t block = position / kMixtureBlock;
  // Sources own runs of slots; the permutation spreads them over the block. A slot's place within its run counts the
  // earlier samples of the source in this block, in another order.
  const std::int64_t slot =
      Permutation(kMixtureBlock, seed_, "data.mixture." + std::to_string(block))(position % kMixtureBlock);
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), slot);
  const std::int64_t first = end == ends_.begin() ? 0 : *(end - 1);
  return {static_cast<std::size_t>(end - ends_.begin()), block * (*end - first) + slot - first};
}

}  // namespace chimera
