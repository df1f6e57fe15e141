#pragma once
// Threads that stand for the ranks of a run, kept between its steps.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/ids.h"

namespace chimera {

class RankThreads {
 public:
  using Body = std::function<void(WorkerId)>;

  explicit RankThreads(int ranks);
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  ~RankThreads();

  /// Calls body(0) .. body(ranks - 1), each in its own thread, the same one every time, and returns when all have
  /// returned. Throws what the first of them to fail threw; a body must see to it that the others then end too.
  void run(int ranks, const Body& body);

 private:
  void serve(WorkerId rank);

  std::mutex mutex_;
  std::condition_variable changed_;
  const Body* body_ = nullptr;  // of the turn under way
  int ranks_ = 0;               // that take part in it
  int at_work_ = 0;
  std::int64_t turn_ = 0;
  bool over_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace chimera
