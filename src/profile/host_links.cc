#include "profile/host_links.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "bench/machine_line.h"
#include "profile/contention_bench.h"
#include "profile/host_bench.h"
#include "profile/link_text.h"
#include "profile/profile_groups.h"

namespace chimera {
namespace {

/// Ops for ranks that have no model: some milliseconds.
OpWork multiply_matrices() {
  constexpr std::int64_t kRows = 512;
  return [one = at::ones({kRows, kRows})] { (void)at::mm(one, one); };
}

/// What a link of that beta carries in so many seconds, within limits.
std::int64_t bytes_in(double seconds, double beta, double most) {
  constexpr double kLeast = 4096;
  return static_cast<std::int64_t>(beta > 0 ? std::clamp(seconds / beta, kLeast, most) : most);
}

}  // namespace

LinkSamples measure_between_hosts(Transport& transport, int rank, double seconds) {
  constexpr int kHosts = 2;
  constexpr double kMostSummed = 16 << 20;
  constexpr double kMostSent = 1 << 20;
  constexpr int kSentAtOnce = 8;
  Lockstep ranks(transport, rank, kHosts);
  LinkSamples links = measure_links(ranks, kPairGroup, seconds);
  double beta = rank == 0 ? line_between_ends(links.sums).beta : 0;
  transport.all_sum({&beta, 1});
  const double moment = seconds / 16;
  links.at_once =
      1 - measure_sums_overlap(ranks, {kPairGroup, kOtherPairGroup}, seconds / 2, bytes_in(moment, beta, kMostSummed));
  links.copies =
      measure_message_copies(ranks, multiply_matrices(), seconds / 2, bytes_in(moment / kSentAtOnce, beta, kMostSent));
  links.step_overhead = measure_step_overhead(ranks);
  return links;
}

NodeLinks fit_links(const LinkSamples& links) {
  return {as_messages(fit_behind_burst(links.messages)),
          as_sums(line_between_ends(links.sums)),
          links.at_once,
          links.copies,
          links.step_overhead,
          "chimera profile --between: " + machine_line()};
}

std::string to_text(const NodeLinks& links) {
  return link_line("messages", links.messages) + link_line("sums", links.sums) +
         fmt::format("{:<16} {:+.0f} %\n", "two sums at once", 100 * links.transfers) +
         link_line("message copies", links.copies) +
         fmt::format("{:<16} {:.1f} us\n", "end of a step", 1e6 * links.step_overhead);
}

std::string to_text(const LinkSamples& links) {
  const NodeLinks fitted = fit_links(links);
  return to_text(fitted) + fit_lines_of(links, fitted.messages, fitted.sums);
}

}  // namespace chimera
