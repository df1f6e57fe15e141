#pragma once
// Named places at which a test (or a user rehearsing a cluster) makes a rank fail:
// CHIMERA_FAULT=ACTION@POINT[:RANK[:COUNT[:START]]], several of them with commas between.

#include <string_view>

namespace chimera {

/// Throws ConfigError where CHIMERA_FAULT is malformed or names an unknown point, as every fault point would.
void check_fault_plan();

/// Tells fault points which rank the calling thread is.
void set_fault_rank(int rank);
/// The rank that this thread was told, else 0: for it to tell the threads that work for it.
[[nodiscard]] int fault_rank();

/// Does nothing unless CHIMERA_FAULT names this point, the calling thread's rank (default 0), the COUNT-th passage of
/// it by that thread (default 1) and the START-th start of the job (default 1, 0: each; a rank that takes the place of
/// another in the n-th recovery is in start n + 1). Then, by ACTION: `kill` sends
/// SIGKILL to this process, `kill-launcher` to its parent, `terminate` and `terminate-launcher` SIGTERM, `throw` throws
/// Error("fault injected at POINT"), `segfault` raises SIGSEGV, `stop` stops this process, as SIGSTOP does, `hang`
/// stops the calling thread alone, for ever, `slow` keeps it for 20 ms, in this passage and all later ones, and `nan`
/// (forward, backward, all-reduce) and `flip` (step, updated, moments, message) return true: the caller then makes a
/// number of its result a NaN, or flips a bit of a weight, of what the optimizer remembers or of a message. Points:
/// start, rendezvous, connected, step, forward, backward, message (one has arrived), all-reduce, handed-in and
/// sum (in shared memory: this rank has handed in its gradients; all of its host have), vote (a rank has all gradients
/// of a step and is about to say so), optimizer (before an update), updated and moments (after it), leave (a rank that
/// lost another leaves the step), restore (each tensor that a rank gives or takes in a recovery), resume (it is about
/// to go on), tokenized (it is noted how far), save, saved (around a rank's part of a checkpoint), before-manifest,
/// before-rename, after-rename (its commit). Throws as check_fault_plan().
bool fault_point(std::string_view point);

}  // namespace chimera
