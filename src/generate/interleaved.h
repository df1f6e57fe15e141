#pragma once
// What interleaved 1F1B and its split-backward form share: micro-batches that go round the chunks in groups.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// Why interleaved schedules do not take the shape: loop_refusal(), or N is no multiple of its number of groups,
/// max(1, N div D).
[[nodiscard]] std::optional<std::string> interleaved_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// The order in which a worker runs the forwards, and the backwards, of its v chunks (chunk c of worker r is stage
/// cD + r): `group` micro-batches at its first chunk, the same at its second, and so on, then the next `group`.
/// Backwards likewise, from its last chunk to its first. N is split into max(1, N div D) groups.
/// Source: Narayanan et al., SC'21 (Megatron-LM), section 2.2.2; groups as in torch.distributed.pipelining.
class Rounds {
 public:
  explicit Rounds(const PipelineShape& shape);

  [[nodiscard]] std::int64_t group() const { return group_; }
  /// Forwards of a worker; as many backwards.
  [[nodiscard]] std::int64_t passes() const { return passes_; }
  /// The worker's k-th forward, B, I or W, k from 0 to passes() - 1. A W comes in the order of the I.
  [[nodiscard]] Op op(OpKind kind, std::int64_t worker, std::int64_t k) const;

 private:
  std::int64_t depth_;
  std::int64_t chunks_;
  std::int64_t group_;
  std::int64_t passes_;
};

/// 1F1B in such rounds: worker r warms up with 2(D-1-r) + (v-1) group() forwards, or as many as there are, then runs
/// one forward and one backward in turn, then the remaining backwards. With `pairs` it warms up with one more, and the
/// two of a turn are a pair. [worker]
[[nodiscard]] std::vector<std::vector<Op>> one_f_one_b_in_rounds(const PipelineShape& shape, bool pairs);

}  // namespace chimera
