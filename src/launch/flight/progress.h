#pragma once

// The shared-memory page to which each rank of a host writes its current activity (RankProgress in flight_record.h).
// The launcher reads the page to detect hangs (hang.h) and to name the step of a failed rank; `chimera top` reads it to
// show what ranks do. A write takes a few stores, so ranks note every instruction. The flight recorder stores thousands
// of earlier activities.

#include <sys/types.h>

#include "core/file_descriptor.h"
#include "launch/flight/flight_record.h"

namespace chimera {

/// Name of the memory file that holds the page.
inline constexpr const char* kProgressName = "chimera-progress";

/// Shared-memory page with the latest activity of each rank of a host.
class ProgressPage {
 public:
  /// Creates a page, in the launcher, of a job with `steps` steps (0: unknown). Throws Error if the system refuses.
  explicit ProgressPage(int ranks, std::int64_t steps = 0);
  /// Maps the page of another process. A rank maps the page of its launcher. `chimera top` opens the page of a rank, a
  /// file /proc/PID/fd/N named kProgressName. Throws Error if it is not a progress page, or if the system refuses.
  explicit ProgressPage(FileDescriptor page, bool is_read_only = false);
  ProgressPage(ProgressPage&& other) noexcept
      : page_(std::move(other.page_)), ranks_(other.ranks_), slots_(std::exchange(other.slots_, nullptr)) {}
  ProgressPage& operator=(ProgressPage&&) = delete;
  ~ProgressPage();

  [[nodiscard]] int descriptor() const { return page_.get(); }
  [[nodiscard]] int ranks() const { return static_cast<int>(ranks_); }
  /// Records the activity of a rank with a few memory stores. Each rank needs a single writer.
  void note(int rank, const RankProgress& progress);
  /// Returns the number of calls of note() for this rank.
  [[nodiscard]] std::uint64_t count(int rank) const;
  /// Returns the latest activity of a rank. May mix two activities during a concurrent note().
  [[nodiscard]] RankProgress last(int rank) const;
  /// Sets the process of a rank.
  void set_process(int rank, pid_t process);
  /// Returns the process of a rank; 0: it has not started, or its process does not write to this page.
  [[nodiscard]] pid_t process(int rank) const;
  /// Returns the number of steps of the job; 0: unknown.
  [[nodiscard]] std::int64_t steps() const;

 private:
  struct Slot;

  FileDescriptor page_;
  std::size_t ranks_ = 0;
  Slot* slots_ = nullptr;
};

/// Records the activity of the calling rank on its progress page and in its flight record. A rank calls it from one
/// thread at a time. Does nothing in a thread that is not a rank's.
void note_progress(const RankProgress& progress);

/// Records that the rank makes progress within its latest activity, for example after each copied tensor, so that it
/// does not appear to hang. Flight records omit it.
void note_more_progress();

/// Sets the page to which note_progress() of the calling thread writes, for ranks that are threads (ThreadHangWatch in
/// hang.h). Null: the page of the process.
void set_progress_page(ProgressPage* page, int rank);

/// Sets the page and the rank of this process, for all threads without a page of their own, and writes the process id
/// to the page.
void set_process_progress_page(ProgressPage page, int rank);

}  // namespace chimera
