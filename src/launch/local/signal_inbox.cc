#include "launch/local/signal_inbox.h"

#include <poll.h>
#include <sys/signalfd.h>

namespace chimera {

SignalInbox::SignalInbox() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGUSR1);
  struct sigaction hang_up_action {};
  ::sigaction(SIGHUP, nullptr, &hang_up_action);
  if (hang_up_action.sa_handler != SIG_IGN) ::sigaddset(&signals, SIGHUP);
  fd_ = FileDescriptor(check_system(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK), "receive signals"));
  ::pthread_sigmask(SIG_BLOCK, &signals, &previous_mask_);
  struct sigaction child_action {};
  child_action.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &child_action, &previous_child_action_);
}

SignalInbox::~SignalInbox() {
  while (next()) {
  }
  ::sigaction(SIGCHLD, &previous_child_action_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

std::optional<int> SignalInbox::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

bool SignalInbox::waiting() const {
  pollfd watched{fd_.get(), POLLIN, 0};
  return ::poll(&watched, 1, 0) > 0;
}

std::optional<int> wait_between_starts(SignalInbox& signals, std::chrono::milliseconds pause) {
  pollfd watched{signals.fd(), POLLIN, 0};
  ::poll(&watched, 1, static_cast<int>(pause.count()));
  const auto number = signals.next();
  if (!number) return std::nullopt;
  return *number == SIGINT ? exit_code_of_signal(*number) : static_cast<int>(kSavedExit);
}

}  // namespace chimera
