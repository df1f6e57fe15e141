#include "launch/flight/progress.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

static_assert(std::is_trivially_copyable_v<RankProgress>, "it is passed on as bytes");
constexpr std::size_t kWords = (sizeof(RankProgress) + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free, "a lock would be one process's own");

// A rank is a process, with one page for all of its threads, or a thread of a process with several ranks.
struct OwnProgress {
  ProgressPage* page = nullptr;
  int rank = 0;
};
OwnProgress process_progress;
thread_local OwnProgress thread_progress;

/// Returns null outside of a rank.
OwnProgress current_progress() { return thread_progress.page != nullptr ? thread_progress : process_progress; }

}  // namespace

/// Two cache lines, against false sharing between ranks.
struct alignas(128) ProgressPage::Slot {
  Word count = 0;
  Word process = 0;
  Word steps = 0;
  std::array<Word, kWords> progress = {};
};

ProgressPage::ProgressPage(int ranks, std::int64_t steps)
    : ProgressPage(make_memory_file(kProgressName, static_cast<std::size_t>(ranks) * sizeof(Slot))) {
  slots_->steps = static_cast<std::uint64_t>(steps);
}

// The size comes from the file: `chimera top` does not know the job that another process has started.
ProgressPage::ProgressPage(FileDescriptor page, bool is_read_only) : page_(std::move(page)) {
  struct stat status {};
  check_system(::fstat(page_.get(), &status), "get the size of the progress page");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes == 0 || bytes % sizeof(Slot) != 0) throw Error("this is not a progress page of ranks");
  ranks_ = bytes / sizeof(Slot);
  void* memory = ::mmap(nullptr, bytes, is_read_only ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, page_.get(), 0);
  if (memory == MAP_FAILED) check_system(-1, "map the progress page");
  slots_ = static_cast<Slot*>(memory);
}

ProgressPage::~ProgressPage() {
  if (slots_ != nullptr) ::munmap(slots_, ranks_ * sizeof(Slot));
}

// The words are stored one by one without a lock: a rank must never wait for its launcher, which may be stopped. A
// reader can see words of two notes; the launcher only names the activity of a rank that has made no notes for a long
// time. The count comes last (release), so a reader that sees a new count does not see an older activity.
void ProgressPage::note(int rank, const RankProgress& progress) {
  Slot& slot = slots_[rank];
  std::array<std::uint64_t, kWords> words{};
  std::memcpy(words.data(), &progress, sizeof progress);
  for (std::size_t i = 0; i < kWords; ++i) slot.progress[i].store(words[i], std::memory_order_relaxed);
  slot.count.store(slot.count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

std::uint64_t ProgressPage::count(int rank) const { return slots_[rank].count.load(std::memory_order_acquire); }

RankProgress ProgressPage::last(int rank) const {
  std::array<std::uint64_t, kWords> words{};
  for (std::size_t i = 0; i < kWords; ++i) words[i] = slots_[rank].progress[i].load(std::memory_order_relaxed);
  RankProgress progress;
  std::memcpy(static_cast<void*>(&progress), words.data(), sizeof progress);
  return progress;
}

void ProgressPage::set_process(int rank, pid_t process) { slots_[rank].process = static_cast<std::uint64_t>(process); }
pid_t ProgressPage::process(int rank) const { return static_cast<pid_t>(slots_[rank].process.load()); }
std::int64_t ProgressPage::steps() const { return static_cast<std::int64_t>(slots_->steps.load()); }

void note_progress(const RankProgress& progress) {
  record_flight(progress);
  if (const auto [page, rank] = current_progress(); page != nullptr) page->note(rank, progress);
}

void note_more_progress() {
  if (const auto [page, rank] = current_progress(); page != nullptr) page->note(rank, page->last(rank));
}

void set_progress_page(ProgressPage* page, int rank) { thread_progress = {page, rank}; }

void set_process_progress_page(ProgressPage page, int rank) {
  static std::optional<ProgressPage> own;
  process_progress = {&own.emplace(std::move(page)), rank};
  own->set_process(rank, ::getpid());
}

}  // namespace chimera
