#pragma once
// What each rank is doing, on a page that it shares with the launcher: how the launcher finds out that nothing happens
// any more, and where.

#include <cstdint>
#include <string>
#include <utility>

#include "core/file_descriptor.h"
#include "schedule/program.h"

namespace chimera {

/// What a rank is doing.
struct RankProgress {
  enum class Phase : std::uint8_t {
    StartUp,  ///< preparing, by itself
    Joining,  ///< waiting for the other ranks to appear
    Steps,    ///< at `instruction` of `step`, or just after it
    Ending,   ///< writing what is left to write
  };
  Phase phase = Phase::StartUp;
  std::int64_t step = 0;  ///< from 1
  Instruction instruction = {};
};

/// `start-up`, `joining the other ranks`, `1B3 in step 4`, `its end`.
[[nodiscard]] std::string to_text(const RankProgress& progress);
/// Whether it can only go on once another rank does something.
[[nodiscard]] bool waits_for_others(const RankProgress& progress);

/// What the page is called in the memory of a process.
inline constexpr const char* kProgressName = "chimera-progress";

/// The page of all ranks, in memory that goes with the last process.
class ProgressPage {
 public:
  /// The launcher's side: makes a new page. Throws Error where the system refuses.
  explicit ProgressPage(int ranks);
  /// A rank's side: the page behind the descriptor that the launcher handed down.
  ProgressPage(FileDescriptor page, int ranks);
  /// An onlooker's side, who only reads: the page of a running job, opened as /proc/PID/fd/N of one of its processes,
  /// where its name is kProgressName. Throws Error where it is no page of ranks.
  [[nodiscard]] static ProgressPage seen(FileDescriptor page);
  ProgressPage(ProgressPage&& other) noexcept
      : page_(std::move(other.page_)), ranks_(other.ranks_), slots_(std::exchange(other.slots_, nullptr)) {}
  ProgressPage& operator=(ProgressPage&&) = delete;
  ~ProgressPage();

  [[nodiscard]] int descriptor() const { return page_.get(); }
  [[nodiscard]] int ranks() const { return static_cast<int>(ranks_); }
  /// Notes what the rank begins to do. A few stores to memory: cheap enough for every instruction. One writer a rank.
  void note(int rank, const RankProgress& progress);
  /// How often the rank has noted something.
  [[nodiscard]] std::uint64_t count(int rank) const;
  /// What it noted last; nonsense while it is noting.
  [[nodiscard]] RankProgress last(int rank) const;

 private:
  struct Slot;
  ProgressPage(FileDescriptor page, std::size_t ranks, int protection);
  void map(int protection);

  FileDescriptor page_;
  std::size_t ranks_;
  Slot* slots_ = nullptr;
};

}  // namespace chimera
