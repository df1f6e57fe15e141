#include "runtime/helper_thread.h"

#include <ATen/ThreadLocalState.h>

#include <memory>

namespace chimera {

std::future<void> HelperThread::begin(const std::function<void()>& work) {
  // Grad mode, autocast and dispatch keys are thread-local, and the work must see those of the caller. A packaged_task
  // stores an exception in the future.
  const auto task = std::make_shared<std::packaged_task<void()>>([work, state = at::ThreadLocalState()] {
    const at::ThreadLocalStateGuard guard(state);
    work();
  });
  std::future<void> end = task->get_future();
  pool_.run([task] { (*task)(); });
  return end;
}

}  // namespace chimera
