#include "launch/hosts/remote_rank.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <type_traits>
#include <utility>

#include "core/files.h"
#include "core/reject.h"
#include "launch/hosts/host_restarts.h"
#include "launch/local/place.h"
#include "launch/local/recovery.h"
#include "launch/local/run_commands.h"

// Relay and agent exchange lines of text through the pipes of ssh. A line of the agent that begins with kMark is a
// message; all other lines are output of the rank, which the relay passes on. Structs go as the hexadecimal digits of
// their bytes. The agent sends a line every kBeat, with the rank's progress or without, so that silence means that the
// host or the way to it is lost. Relay::run() and Agent::run() are loops around poll(); use_relays() at the end makes
// launch() start relays.

namespace chimera {
namespace {

// The agent's lines to the relay begin with kMark and one of these letters; other output is the rank's own.
// It begins with a control character (record separator), which programs do not print.
constexpr std::string_view kMark = "\036chimera ";
constexpr char kAlive = 'a';
constexpr char kProgress = 'p';  ///< Bytes of a RankProgress
constexpr char kReport = 'r';    ///< FailureReport or RecoveryNote
constexpr char kEnd = 'e';       ///< Bytes of an Ending
// The relay's lines to the agent begin with one of these.
constexpr char kOrder = 'o';   ///< Bytes of an Order and, to join, host and port of the rendezvous server
constexpr char kSignal = 's';  ///< Number of a signal

constexpr std::chrono::milliseconds kBeat{50};  // between two lines of an agent
constexpr std::chrono::milliseconds kLook{5};   // between two looks at a rank that does not train yet
constexpr std::chrono::milliseconds kPoll{250};
// After so many polls a silent host counts as lost. If the job can do without the host, this must be soon, and before
// the limit for hangs. Otherwise a connection gets time to recover.
constexpr int kSilentPolls = 8;
constexpr int kSilentPollsAtMost = 40;
constexpr int kLogins = 8;  // at a time on a host; sshd refuses more than ten (MaxStartups)
constexpr std::chrono::milliseconds kProbe{10'000};
constexpr std::chrono::milliseconds kBetweenProbes{1000};
constexpr std::chrono::milliseconds kLastOutput{2000};  // wait for output of a rank that has ended

/// Agent and relay are the same build; ranks compare builds when they connect.
template <class Value>
std::string to_hex(const Value& value) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::array<unsigned char, sizeof(Value)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

template <class Value>
Value from_hex(const std::string& text) {
  std::array<unsigned char, sizeof(Value)> bytes{};
  if (text.size() != 2 * bytes.size()) throw Error("relay and agent of a rank are different builds");
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  Value value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// Waits until few relays of the host are logging in; the result ends the login.
FileDescriptor wait_to_log_in(const std::string& input_path, const HostRanks& ranks, int rank) {
  // Opened anew: a lock of this kind belongs to an open file, and all relays have inherited the same one.
  FileDescriptor file(check_system(::open(input_path.c_str(), O_RDWR | O_CLOEXEC), "open a file in memory"));
  // Each byte is one login.
  struct flock login {
    .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ranks.first + (rank - ranks.first) % kLogins, .l_len = 1
  };
  check_system(::fcntl(file.get(), F_OFD_SETLKW, &login), "lock a file in memory");
  return file;
}

/// The order of one rank for its agent.
AgentOrder order_of(const RemoteJob& job, const RankEnvironment& self) {
  const RemoteHost& host = job.host_of(self.rank);
  AgentOrder order{.rank = self.rank,
                   .world_size = self.world_size,
                   .arguments = job.arguments,
                   .variables = job.variables,
                   .recovers = self.orders.has_value()};
  // A replacement gets its weights from other ranks.
  if (self.generation > 0) order.arguments.insert(order.arguments.end(), {"--resume", "none"});
  const auto set = [&](const char* name, auto value) { order.variables[name] = fmt::format("{}", value); };
  set(kStartVariable, std::getenv(kStartVariable));
  set(kGenerationVariable, self.generation);
  set(kMasterAddressVariable, job.hosts.front().address);
  set(kMasterPortVariable, job.port);
  set(kLocalRankVariable, self.rank - host.ranks.first);
  set(kLocalSizeVariable, host.ranks.count);
  return order;
}

/// The relay of one rank, from the start of its agent to the end of the rank.
class Relay {
 public:
  Relay(const RankEnvironment& self, const RemoteJob& job, SignalInbox& signals)
      : self_(self),
        job_(job),
        host_(job.host_of(self.rank)),
        login_(wait_to_log_in(self.input_path, host_.ranks, self.rank)),
        signals_(signals),
        output_(open_pipe(/*nonblocking=*/true)),
        lines_(output_.read.get()),
        agent_(start_agent()) {}

  Ending run() {
    const int most_silent = self_.orders ? kSilentPolls : kSilentPollsAtMost;
    for (int silent = 0; !ending_; ++silent) {
      std::array<pollfd, 4> events = {{{self_.orders.value_or(-1), POLLIN, 0},
                                       {signals_.fd(), POLLIN, 0},
                                       {output_.read.get(), POLLIN, 0},
                                       {agent_.pidfd(), POLLIN, 0}}};
      static_cast<void>(::poll(events.data(), events.size(), static_cast<int>(kPoll.count())));
      if (events[0].revents != 0) pass_order();
      while (const auto number = signals_.next()) {
        // The launcher gets Ctrl-C itself, asks ranks to save by SIGUSR1, and ends the job by SIGTERM.
        if (*number != SIGINT) send(kSignal + std::to_string(*number == SIGTERM ? SIGKILL : *number));
      }
      if (events[2].revents != 0) {
        silent = 0;
        take_lines();
      }
      if (events[3].revents != 0 || lines_.has_ended()) {
        take_lines();
        const char* what = is_connected_ ? "the connection to host {} has ended" : "host {} is not reached";
        if (!ending_) fail(fmt::format(fmt::runtime(what), host_.ranks.host));
      }
      if (is_connected_ && silent >= most_silent) {
        fail(fmt::format("host {} silent for {:g} s: it is down, stopped or cut off", host_.ranks.host,
                         std::chrono::duration<double>(most_silent * kPoll).count()));
      }
    }
    return *ending_;
  }

 private:
  ChildProcess start_agent() {
    PipeEnds input = open_pipe(/*nonblocking=*/false);
    // The agent may inherit this environment, for example in tests, and must not take itself for a rank.
    std::vector<std::string> words = {"-u", kLauncherVariable};
    const std::vector<std::string> command = command_on(host_, {"launch", "--agent"});
    words.insert(words.end(), command.begin(), command.end());
    ChildProcess agent(
        {.executable = "env", .arguments = std::move(words), .input = input.read.get(), .output = output_.write.get()});
    output_.write = FileDescriptor();
    input_ = std::move(input.write);
    send(to_line(order_of(job_, self_)));
    return agent;
  }

  /// An error ends the connection too, which is noticed there.
  void send(const std::string& line) { static_cast<void>(write_all(input_.get(), line + "\n")); }

  void pass_order() {
    const auto received = receive_order(*self_.orders);
    if (!received) return fail("the launcher has ended");
    const Order& order = received->order;
    // The lowest rank that is present runs the server (reconnecting_transport.cc). Generation n uses the port n above
    // the job's, and continues with 1024 behind 65535.
    int first = 0;
    while (order.absent.test(static_cast<std::size_t>(first))) ++first;
    constexpr std::int64_t kFirstPort = 1024;
    const std::int64_t port = kFirstPort + (job_.port - kFirstPort + order.generation) % (65536 - kFirstPort);
    const std::string server = fmt::format(" {} {}", job_.host_of(first).address, port);
    send(kOrder + to_hex(order) + (order.kind == Order::Kind::Join ? server : ""));
  }

  void take_lines() {
    lines_.read_available();
    while (const auto line = lines_.next()) {
      // A message may begin in the middle of a line, behind output of the rank without a line end.
      const std::size_t mark = line->find(kMark);
      const std::size_t kind = mark + kMark.size();
      const bool is_output = mark == std::string::npos || kind >= line->size();
      const std::string text = is_output ? *line + "\n" : line->substr(0, mark);
      if (!text.empty()) static_cast<void>(write_all(STDOUT_FILENO, text));
      if (!is_output) take_message((*line)[kind], line->substr(kind + 1));
    }
  }

  void take_message(char kind, const std::string& text) {
    is_connected_ = true;
    login_ = FileDescriptor();
    if (kind == kProgress) note_progress(from_hex<RankProgress>(text));
    if (kind == kReport) {
      const auto note = parse_note(text);
      note ? note_recovery(*note) : report_failure(parse_report(text).value_or(FailureReport{}));
    }
    if (kind == kEnd) {
      // The rank's standard output has come before this line, through the same pipe. Its standard error has not: ssh
      // passes it on by another way, and has done so when it ends.
      pollfd end{agent_.pidfd(), POLLIN, 0};
      static_cast<void>(::poll(&end, 1, static_cast<int>(kLastOutput.count())));
      ending_ = from_hex<Ending>(text);
    }
  }

  void fail(const std::string& message) {
    report_failure({.op = "", .message = message});
    ending_ = Ending{Ending::Kind::Exited, static_cast<int>(ExitCode::No)};
  }

  const RankEnvironment& self_;
  const RemoteJob& job_;
  const RemoteHost& host_;
  FileDescriptor login_;  ///< Of wait_to_log_in(), until the agent answers
  SignalInbox& signals_;
  FileDescriptor input_;  ///< Pipe to the agent
  PipeEnds output_;       ///< Pipe from the agent
  LineReader lines_;
  ChildProcess agent_;
  bool is_connected_ = false;
  std::optional<Ending> ending_;
};

Ending relay(const RankEnvironment& self) {
  const RemoteJob job = read_remote_job(self.input_path);
  SignalInbox signals;
  const auto host_answers = [&] {
    // A replacement starts only when its host answers again.
    const auto reply = run_commands({command_on(job.host_of(self.rank), {"--version"})}, kProbe, signals).front();
    return reply && reply->exit_code == 0;
  };
  while (self.generation > 0 && !host_answers())
    if (signals.has_signal(kBetweenProbes)) return {Ending::Kind::Exited, static_cast<int>(ExitCode::PeerLost)};
  return Relay(self, job, signals).run();
}

/// The agent of one rank.
class Agent {
 public:
  Agent(const AgentOrder& order, LineReader& lines)
      : order_(order),
        lines_(lines),
        page_(order.world_size),
        reports_(open_pipe(/*nonblocking=*/true)),
        report_lines_(reports_.read.get()),
        orders_(order.recovers ? open_order_channel() : OrderChannel()),
        rank_(start_rank()) {}

  int run() {
    while (true) {
      std::array<pollfd, 3> events = {
          {{lines_.descriptor(), POLLIN, 0}, {reports_.read.get(), POLLIN, 0}, {rank_.pidfd(), POLLIN, 0}}};
      const auto pause = order_.recovers && phase_ != RankProgress::Phase::Steps ? kLook : kBeat;
      static_cast<void>(::poll(events.data(), events.size(), static_cast<int>(pause.count())));
      if (events[0].revents != 0) lines_.read();
      take_lines();  // Also those that came with the order of the rank
      if (lines_.has_ended()) return static_cast<int>(ExitCode::PeerLost);
      const auto ending = rank_.reap();
      report_lines_.read_available();
      while (const auto line = report_lines_.next()) send(kReport + *line);
      send_progress_if_due();
      if (!ending) continue;
      send(kEnd + to_hex(*ending));
      return 0;
    }
  }

 private:
  ChildProcess start_rank() {
    Command command{.executable = own_executable(), .arguments = order_.arguments, .environment = order_.variables};
    const auto set = [&](const char* name, auto value) { command.environment[name] = fmt::format("{}", value); };
    set(kLauncherVariable, ::getpid());
    set(kRankVariable, order_.rank);
    set(kWorldSizeVariable, order_.world_size);
    set(kStoreVariable, "");
    set(kInputVariable, "");
    command.pass(kReportVariable, reports_.write.get());
    command.pass(kProgressVariable, page_.descriptor());
    if (order_.recovers) command.pass(kOrdersVariable, orders_.rank.get());
    ChildProcess rank(command);
    orders_.rank = FileDescriptor();
    return rank;
  }

  static void send(const std::string& line) {
    static_cast<void>(write_all(STDOUT_FILENO, fmt::format("{}{}\n", kMark, line)));
  }

  /// The launcher learns at once that the rank trains: if this host is lost then, the job can go on. A rank that
  /// computes makes progress, even if it starts no instruction.
  void send_progress_if_due() {
    const auto now = std::chrono::steady_clock::now();
    const RankProgress::Phase phase = page_.last(order_.rank).phase;
    if (phase == phase_ && now < next_beat_) return;
    phase_ = phase;
    next_beat_ = now + kBeat;
    const std::uint64_t count = page_.count(order_.rank);
    const std::chrono::nanoseconds work = rank_.is_running() ? rank_.processor_time() : work_;
    constexpr int kShare = 20;
    const bool computes = work - std::exchange(work_, work) > kBeat / kShare;
    const bool moves = std::exchange(count_, count) != count || computes;
    send(moves ? kProgress + to_hex(page_.last(order_.rank)) : std::string(1, kAlive));
  }

  void take_lines() {
    while (const auto line = lines_.next()) {
      std::istringstream words(line->substr(1));
      std::string first;
      words >> first;
      if (line->front() == kSignal) rank_.send(parse_number<int>(first).value_or(SIGTERM));
      if (line->front() != kOrder) continue;
      const Order order = from_hex<Order>(first);
      const FileDescriptor server = make_memory_file("chimera-store", 0);
      std::string place;
      std::getline(words, place);
      static_cast<void>(write_all(server.get(), place));
      send_order(orders_.launcher.get(), order, order.kind == Order::Kind::Join ? server.get() : -1);
    }
  }

  const AgentOrder& order_;
  LineReader& lines_;
  ProgressPage page_;
  PipeEnds reports_;
  LineReader report_lines_;
  OrderChannel orders_;
  ChildProcess rank_;
  std::uint64_t count_ = 0;
  std::chrono::nanoseconds work_{0};
  RankProgress::Phase phase_ = RankProgress::Phase::StartUp;
  std::chrono::steady_clock::time_point next_beat_;
};

/// Waits for the first line. Throws ConfigError if it is malformed or missing.
AgentOrder read_order(LineReader& lines) {
  while (!lines.has_ended()) {
    if (const auto line = lines.next()) return parse_order(*line);
    lines.read();
  }
  return parse_order("");
}

/// Changes the plan of an attempt so that it starts relays. Returns false if no attempt is possible.
bool start_relays(HostAttempts& attempts, LaunchPlan& attempt, const SignalInbox& signals) {
  const auto job = attempts.next(std::move(attempt.arguments), signals);
  if (!job) return false;
  attempt.ranks = job->ranks();
  attempt.arguments = {"launch", "--relay"};
  attempt.input = to_text(*job);
  attempt.hosts.clear();
  for (int rank = 0; rank < attempt.ranks; ++rank) attempt.hosts.push_back(job->host_of(rank).ranks.host);
  return true;
}

}  // namespace

void use_relays(LaunchPlan& plan, RemoteJob job) {
  if (job.ranks() != plan.ranks) {
    reject(
        "`chimera launch` has started {} processes, but this run has {} ranks; start as many as D W T, or change "
        "--stages, --data-parallel and --tensor-parallel",
        job.ranks(), plan.ranks);
  }
  if (plan.most_restarts > 0 && plan.most_recoveries > 0)
    reject("--max-restarts: `chimera launch` does not restart a job with --recover twin or reroute");
  require_descriptors(std::int64_t{4} * plan.ranks, fmt::format("{} ranks", plan.ranks), "use fewer ranks");
  const auto attempts = std::make_shared<HostAttempts>(std::move(job), plan.arguments);
  plan.place = [attempts](LaunchPlan& attempt, const SignalInbox& signals) {
    return start_relays(*attempts, attempt, signals);
  };
  plan.entry = nullptr;
  plan.replacement_arguments = {};
  plan.waits_idle = false;  // The processor time of relays says nothing of ranks
}

int run_relay(const RankEnvironment& self) {
  const Ending ending = relay(self);
  if (ending.kind == Ending::Kind::Killed) {
    ::signal(ending.value, SIG_DFL);
    ::raise(ending.value);
  }
  return exit_code_of(ending);
}

int run_agent(int input) {
  ::signal(SIGPIPE, SIG_IGN);
  LineReader lines(input);
  const AgentOrder order = read_order(lines);
  return Agent(order, lines).run();
}

}  // namespace chimera
