#pragma once
// Fault injection, for tests. Code calls fault_point("save") at each place (*fault point*) where a test may want the
// process to die, hang or corrupt data. The environment variable CHIMERA_FAULT selects the point, the rank and the kind
// of failure. Without the variable a call costs nanoseconds.

#include <string_view>

namespace chimera {

/// Throws ConfigError if CHIMERA_FAULT is malformed or names an unknown point. run_program() calls it at the start.
void check_fault_plan();

/// The calling thread's rank for fault points, 0 by default. Helper threads of a rank must set it too.
[[nodiscard]] int& fault_rank();

/// Fails as CHIMERA_FAULT demands at this point; else does nothing and returns false. The variable is a list of faults
/// ACTION@POINT[:RANK[:COUNT[:START]]], separated by commas. A fault happens on the given rank (default 0), in a
/// thread's COUNT-th call of the point (default 1), in the START-th start of the job (default 1; 0: every start). In a
/// process that replaces a lost rank in the job's n-th recovery, the start number is n + 1. Throws ConfigError if the
/// variable is malformed. Actions:
/// - `kill`, `terminate`: sends SIGKILL or SIGTERM to this process, with suffix `-launcher` to its parent
/// - `throw`: throws Error("fault injected at POINT")
/// - `segfault`, `stop`: raises SIGSEGV or SIGSTOP
/// - `hang`: blocks the calling thread forever
/// - `slow`: delays the calling thread by 20 ms, in this call and all later calls
/// - `slow*FACTOR` (step): ops of the thread take FACTOR times as long (stretch_op()), from this call on; with FROM-TO
///   instead of COUNT, from the FROM-th call to the end of the step of the TO-th
/// - `delay*SECONDS` (link; RANK is a pair A-B): messages between these ranks arrive that much later, and delay only a
///   rank that waits for them (delay_message()); COUNT or FROM-TO count calls of step
/// - `nan` (forward, backward, all-reduce): returns true, and the caller sets a number of its result to NaN
/// - `flip` (step, updated, moments, message): returns true, and the caller flips a bit of a weight, of optimizer state
///   or of a message
///
/// Points: start, rendezvous, connected, step, forward, backward, message (on arrival), all-reduce, handed-in (after
/// this rank has written its gradients into shared memory), sum (after all ranks of the host have written theirs), vote
/// (before confirming the gradients of a step), link (see delay), optimizer (before an update), updated and moments
/// (after the update), leave (when a step ends because a peer is lost), restore (at each tensor of a recovery), resume
/// (before continuing after a recovery), end-barrier (before ranks wait for each other at the end), tokenized (after
/// progress is saved), save and saved (before and after a rank writes its files of a checkpoint), before-manifest,
/// before-rename and after-rename (while one rank commits the checkpoint), export (before a rank writes its part of
/// --export).
bool fault_point(std::string_view point);

/// Delays the calling thread after an op that took `seconds`, if a fault `slow*FACTOR` says so.
void stretch_op(double seconds);

/// Delays the calling thread until a message of rank `from` that was sent at `sent` (monotonic_seconds()) may be read,
/// if a fault `delay*SECONDS` says so. Throws ConfigError if it does and `sent` is 0: the time is not known.
void delay_message(int from, double sent);

}  // namespace chimera
