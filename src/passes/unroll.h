#pragma once
// Several steps of training in a row, as one schedule.

#include <cstdint>

#include "schedule/schedule.h"

namespace chimera {

/// `steps` repetitions of a step of N micro-batches: step k has micro-batches k N .. k N + N - 1.
///
/// *Synchronous:* every worker's lists one after the other. Nothing in the value holds a step back until the one before
/// has updated the weights; whoever runs or times it must (the flush).
///
/// *Asynchronous:* no flush. On each worker the next step's first forwards, up to its first backward, stand among the
/// ops behind the last forward of the step before: one after each op that ends a micro-batch there (B, or W), those
/// that are left at the end. So a worker holds no more activations than in the single step, and 1F1B's strict
/// alternation goes on.
///
/// A worker that forwards all N micro-batches of a step before its first backward is held back by the step, not by the
/// schedule. Where an op uses the newest weights (no delay), it goes on with those of the next steps until as many are
/// at work as there are stages from its own to the last, D - s, or as the number of weight versions allows. So `steps`
/// steps of pipedream are pipedream with steps N micro-batches, N below D too: a run without bubbles after its start.
///
/// Weight versions are those of the stream, by the rule that `updates` states (schedule.h): a stage's newest, counting
/// the updates that stand before the forward in the worker's list, or a fixed delay. So pipedream's micro-batch m uses
/// version max(0, m - (D-1-s)) on stage s, and batch t of pipedream-2bw version max(0, t-1) on every stage.
///
/// Requires a schedule that check() accepts. Throws ConfigError if `steps` is not positive, the ops are more than
/// kMostOps, or the schedule is asynchronous with several replicas (when a stage has an update is then no matter of one
/// worker's list).
[[nodiscard]] Schedule unroll(const Schedule& step, std::int64_t steps);

/// Steps whose micro-batches may be at work at once: 1 with a flush, else D / N, rounded up.
[[nodiscard]] std::int64_t steps_at_work(const Schedule& step);

/// Steps to time in a row for the time of one in the midst of a run (Timeline::period): 1 with a flush.
[[nodiscard]] std::int64_t steps_to_time(const Schedule& step);

}  // namespace chimera
