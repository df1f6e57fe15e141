#pragma once
// Threads that work on jobs side by side, and hand the results back in the order of the jobs.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/no_signals.h"

namespace chimera {

template <class Job, class Result>
class OrderedWorkers {
 public:
  using Work = std::function<Result(Job&)>;

  /// `make_work` is called once for each worker, here; what it returns is that worker's own. Where the system has no
  /// more threads to give, there are fewer workers, for the same results. Throws std::system_error where it gives none.
  OrderedWorkers(int workers, const std::function<Work()>& make_work) {
    const NoSignals none;  // they are for the thread that waits for them
    try {
      for (int i = 0; i < workers; ++i) {
        threads_.emplace_back([this, work = make_work()] { run(work); });
      }
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
    }
  }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;
  ~OrderedWorkers() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    has_job_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(Job job) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::make_shared<Task>(std::move(job)));
      waiting_.push_back(tasks_.back());
    }
    has_job_.notify_one();
  }

  /// Jobs whose results have not been taken.
  [[nodiscard]] std::size_t in_flight() const { return tasks_.size(); }

  /// The result of the oldest of them, once it is there. Throws what its work has thrown.
  Result take() {
    const std::shared_ptr<Task> task = tasks_.front();
    tasks_.pop_front();
    std::unique_lock lock(mutex_);
    has_result_.wait(lock, [&] { return task->result.has_value() || task->error; });
    if (task->error) std::rethrow_exception(task->error);
    return std::move(*task->result);
  }

 private:
  struct Task {
    explicit Task(Job given) : job(std::move(given)) {}
    Job job;
    std::optional<Result> result;
    std::exception_ptr error;
  };

  void run(const Work& work) {
    std::unique_lock lock(mutex_);
    while (true) {
      has_job_.wait(lock, [this] { return stops_ || !waiting_.empty(); });
      if (stops_) return;
      const std::shared_ptr<Task> task = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      std::optional<Result> result;
      std::exception_ptr error;
      try {
        result = work(task->job);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      task->result = std::move(result);
      task->error = error;
      has_result_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable has_job_;
  std::condition_variable has_result_;
  bool stops_ = false;
  std::deque<std::shared_ptr<Task>> tasks_;    // in order, those not taken; of the caller's thread alone
  std::deque<std::shared_ptr<Task>> waiting_;  // those that no worker has begun
  std::vector<std::thread> threads_;
};

}  // namespace chimera
