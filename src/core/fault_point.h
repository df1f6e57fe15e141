#pragma once
// Failures on purpose, for tests: code calls fault_point("save") where a process may die, hang or corrupt data, and the
// environment variable CHIMERA_FAULT says at which point, on which rank and how. Without the variable a call costs
// nanoseconds.

#include <string_view>

namespace chimera {

/// Throws ConfigError if CHIMERA_FAULT is malformed or names an unknown point.
void check_fault_plan();

/// Sets the calling thread's rank for fault points, 0 by default.
void set_fault_rank(int rank);
/// Returns the calling thread's rank, so that its helper threads can set it too.
[[nodiscard]] int fault_rank();

/// Injects the failures of CHIMERA_FAULT=ACTION@POINT[:RANK[:COUNT[:START]]], several separated by commas. An entry
/// applies on the given rank (default 0), in a thread's COUNT-th call of the point (default 1), in the START-th start
/// of the job (default 1; 0: every start). A rank that replaces another in the n-th recovery is in start n + 1. Throws
/// ConfigError as check_fault_plan() does. Actions:
/// - `kill`, `terminate`: sends SIGKILL or SIGTERM to this process, with suffix `-launcher` to its parent
/// - `throw`: throws Error("fault injected at POINT")
/// - `segfault`, `stop`: raises SIGSEGV or SIGSTOP
/// - `hang`: blocks the calling thread forever
/// - `slow`: delays it by 20 ms, in this call and all later calls
/// - `nan` (forward, backward, all-reduce): returns true, and the caller sets a number of its result to NaN
/// - `flip` (step, updated, moments, message): returns true, and the caller flips a bit of a weight, of optimizer
///   state or of a message
///
/// Points: start, rendezvous, connected, step, forward, backward, message (on arrival), all-reduce, handed-in (this
/// rank's gradients are in shared memory), sum (the gradients of all ranks of the host are), vote (before confirming
/// the gradients of a step), optimizer (before an update), updated and moments (after it), leave (a step that lost a
/// peer), restore (each tensor of a recovery), resume (before continuing after a recovery), end-barrier (before ranks
/// wait for each other at the end), tokenized (progress is saved), save and saved (before and after a rank's part of a
/// checkpoint), before-manifest, before-rename and after-rename (the commit of a checkpoint).
bool fault_point(std::string_view point);

}  // namespace chimera
