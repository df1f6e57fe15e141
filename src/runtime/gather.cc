#include "runtime/gather.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "core/mapped.h"

namespace chimera {

std::vector<std::vector<double>> gather(const std::vector<double>& own, RankId rank, std::int64_t num_ranks,
                                        Transport& transport) {
  // Every rank fills in its own part of a vector of zeros, and the sum over all ranks is the whole.
  std::vector<double> counts(static_cast<std::size_t>(num_ranks), 0);
  counts[rank.index()] = static_cast<double>(own.size());
  transport.all_sum(counts);
  // Sums of integers in doubles are exact up to 2^53.
  const auto offset = [&](std::size_t r) {
    return static_cast<std::ptrdiff_t>(std::accumulate(counts.begin(), counts.begin() + std::ptrdiff_t(r), 0.0));
  };
  std::vector<double> all(static_cast<std::size_t>(offset(counts.size())), 0);
  std::ranges::copy(own, all.begin() + offset(rank.index()));
  if (!all.empty()) transport.all_sum(all);
  std::vector<std::vector<double>> ranks;
  for (std::size_t r = 0; r < counts.size(); ++r)
    ranks.emplace_back(all.begin() + offset(r), all.begin() + offset(r + 1));
  return ranks;
}

std::vector<std::string> gather_texts(const std::string& own, RankId rank, std::int64_t num_ranks,
                                      Transport& transport) {
  // A number per byte is eight times as much as needed, but texts are short, and the transport sums only numbers.
  const auto letters = mapped<double>(own, [](char letter) { return static_cast<unsigned char>(letter); });
  std::vector<std::string> texts;
  for (const std::vector<double>& text : gather(letters, rank, num_ranks, transport)) {
    std::string& read = texts.emplace_back();
    for (const double letter : text) read += static_cast<char>(static_cast<unsigned char>(letter));
  }
  return texts;
}

}  // namespace chimera
