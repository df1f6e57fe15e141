#pragma once
// How a long computation is given up from outside: by another thread, while the computing one looks now and then.

#include <atomic>
#include <exception>

namespace chimera {

/// What allow_interruption() throws. No Error: nothing was wrong with what was asked for.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

/// While it lives, allow_interruption() on the calling thread obeys `wanted`, which is borrowed. They may be nested;
/// the inner one counts.
class Interruptible {
 public:
  explicit Interruptible(const std::atomic<bool>& wanted);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  const std::atomic<bool>* outer_;
};

/// A call for the outer loops of what may take seconds; it costs nanoseconds. Throws Interrupted where an Interruptible
/// of this thread is wanted to end.
void allow_interruption();

}  // namespace chimera
