#pragma once

// The shared-memory page on which each rank writes its current activity. The launcher reads it to detect hangs (hang.h)
// and to name the step of a failed rank; `chimera top` reads it to show what ranks do. A write takes a few stores, so
// ranks note every instruction.

#include <cstdint>
#include <utility>

#include "core/file_descriptor.h"
#include "launch/flight/rank_progress.h"

namespace chimera {

inline constexpr const char* kProgressName = "chimera-progress";

/// Shared-memory page of all ranks' activity, to detect and locate hangs.
class ProgressPage {
 public:
  /// Creates a page. Throws Error if the system refuses.
  explicit ProgressPage(int ranks);
  /// Maps the page inherited from the launcher, in a rank.
  ProgressPage(FileDescriptor page, int ranks);
  /// Maps the page read-only. `page` is /proc/PID/fd/N of a rank, a memory file named kProgressName. Throws Error if it
  /// is not a progress page.
  [[nodiscard]] static ProgressPage seen(FileDescriptor page);
  ProgressPage(ProgressPage&& other) noexcept
      : page_(std::move(other.page_)), ranks_(other.ranks_), slots_(std::exchange(other.slots_, nullptr)) {}
  ProgressPage& operator=(ProgressPage&&) = delete;
  ~ProgressPage();

  [[nodiscard]] int descriptor() const { return page_.get(); }
  [[nodiscard]] int ranks() const { return static_cast<int>(ranks_); }
  /// Records an activity with a few memory stores. One writer per rank.
  void note(int rank, const RankProgress& progress);
  /// Returns the number of calls of note().
  [[nodiscard]] std::uint64_t count(int rank) const;
  /// May be inconsistent during a concurrent note().
  [[nodiscard]] RankProgress last(int rank) const;

 private:
  struct Slot;
  ProgressPage(FileDescriptor page, std::size_t ranks, int protection);
  void map(int protection);

  FileDescriptor page_;
  std::size_t ranks_;
  Slot* slots_ = nullptr;
};

/// Sends an activity to the launcher, or to the calling thread's ThreadWatch. One thread at a time. Does nothing
/// outside a rank.
void note_progress(const RankProgress& progress);

/// Counts progress within the last activity, such as a copied tensor. Flight records omit it.
void note_more_progress();

/// Redirects the calling thread's note_progress() to `page`; null: to the process's page.
void note_progress_on(ProgressPage* page, int rank);

/// Sets the process's page.
void note_progress_of_process(ProgressPage page, int rank);

}  // namespace chimera
