#include "rendezvous/heartbeats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/host_name.h"
#include "core/json.h"
#include "core/signals.h"
#include "rendezvous/channel.h"

// One thread per rank (watch()) sends, receives and judges. Rank 0 hears all ranks, and sends its verdict to them; the
// others hear, and judge, only rank 0. There are four ways to a verdict: silence for longer than the limit (silent()),
// a rank that has ended without a word while others announce their end (find_gone()), a rank that has ended with a
// word, and a lost connection, if this rank has not noticed (find_left(), find_closed()). Gloo does not end a wait for
// a message of which a part has arrived when the connection closes (gloo/transport/tcp/pair.cc, signalException).

namespace chimera {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr std::chrono::milliseconds kBeat{250};
constexpr std::chrono::milliseconds kStopped{1000};  // after a longer pause this process was stopped
constexpr std::size_t kMaxBytes = 1024;

/// Sets an event of eventfd(2), which wakes poll() until lower() clears it.
void raise(const FileDescriptor& event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
}

/// Clears the event. Returns whether it was set.
bool lower(const FileDescriptor& event) {
  std::uint64_t count = 0;
  return ::read(event.get(), &count, sizeof count) > 0;
}

/// Returns nullopt if the HMAC does not match.
std::optional<std::string> check_hmac(std::string_view secret, std::string_view datagram) {
  if (datagram.size() <= kDigestBytes) return std::nullopt;
  Digest proof{};
  std::copy_n(datagram.begin(), kDigestBytes, proof.begin());
  std::string words(datagram.substr(kDigestBytes));
  if (!are_equal_digests(proof, prove(secret, words))) return std::nullopt;
  return words;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::vector<int> on_one_host(const std::map<int, PeerHeartbeat>& all, std::vector<int> ranks) {
  const std::string& host = all.at(ranks.front()).host;
  std::erase_if(ranks, [&](int rank) { return all.at(rank).host != host; });
  return ranks;
}

}  // namespace

std::string describe_gone(const std::map<int, PeerHeartbeat>& all, const std::vector<int>& gone) {
  const std::vector<int> ranks = on_one_host(all, gone);
  return fmt::format("{} on host {} {} gone: killed, or ended without an error report", ranks_text(ranks),
                     all.at(ranks.front()).host, ranks.size() == 1 ? "is" : "are");
}

std::string describe_left(const std::map<int, PeerHeartbeat>& all, const std::vector<int>& left,
                          std::chrono::milliseconds time) {
  const std::vector<int> ranks = on_one_host(all, left);
  return fmt::format("{} on host {} ended after an error, and others still waited for {} {:g} s later",
                     ranks_text(ranks), all.at(ranks.front()).host, ranks.size() == 1 ? "it" : "them",
                     std::chrono::duration<double>(time).count());
}

std::string describe_silence(const std::map<int, PeerHeartbeat>& all, const std::vector<int>& silent,
                             std::chrono::milliseconds limit, const std::string& own_host) {
  const std::string& host = all.at(silent.front()).host;
  const std::vector<int> there = on_one_host(all, silent);
  // If other ranks of the host are heard, or it is this host, only processes are stopped, not the host.
  const auto ranks_of_host = std::ranges::count_if(all, [&](const auto& heard) { return heard.second.host == host; });
  const double seconds = std::chrono::duration<double>(limit).count();
  const std::string ranks = ranks_text(there);
  if (host == own_host || ranks_of_host > std::ssize(there))
    return fmt::format("{} on host {} silent for {:g} s: stopped", ranks, host, seconds);
  return fmt::format("host {} ({}) silent for {:g} s: it is down, stopped or cut off", host, ranks, seconds);
}

FileDescriptor Heartbeats::socket_at(const std::string& address) {
  const SocketAddress at = server_addresses({.host = address}).front();
  FileDescriptor socket(::socket(at.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0 || ::bind(socket.get(), at.get(), at.size) != 0)
    throw TransportError(fmt::format("cannot listen for datagrams at {}: {}", address, system_message(errno)));
  return socket;
}

std::uint16_t Heartbeats::port_of(const FileDescriptor& socket) {
  auto own = address_of(socket.get());
  if (!own) check_system(-1, "name a socket");
  return ntohs(own->port());
}

Heartbeats::Heartbeats(FileDescriptor socket, HeartbeatOptions options)
    : options_(std::move(options)), host_(host_name()), socket_(std::move(socket)) {
  begin();
}

Heartbeats::Heartbeats(const std::string& address, std::uint16_t port, HeartbeatOptions options)
    : options_(std::move(options)), host_(host_name()) {
  const SocketAddress to = server_addresses({.host = address, .port = port}).front();
  addresses_[0] = to;
  socket_ = FileDescriptor(
      check_system(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "open a socket for datagrams"));
  send_to(to, "");  // at once, so that rank 0 hears of this rank before it can be lost
  begin();
}

void Heartbeats::begin() {
  news_ = FileDescriptor(check_system(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "watch the other hosts"));
  const SignalBlocker none;
  thread_ = std::thread([this] { watch(); });
}

Heartbeats::~Heartbeats() {
  ends_ = true;
  raise(news_);
  thread_.join();
}

void Heartbeats::leave() {
  leaves_ = true;
  raise(news_);
}

// Each round receives first and judges afterwards, so that heartbeats that arrived while this thread did not run still
// count. Rank 0's verdict comes before an own one: it hears all ranks, and the job should give one reason.
void Heartbeats::watch() {
  auto next = Clock::now();
  while (true) {
    const auto until = settled_ ? std::min(next, *settled_) : next;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    std::array<pollfd, 2> watched = {{{socket_.get(), POLLIN, 0}, {news_.get(), POLLIN, 0}}};
    ::poll(watched.data(), watched.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ends_) return;
    const auto now = Clock::now();
    if (now - next > kStopped)  // the time of a stop (Ctrl-Z) is no silence of the others
      for (auto& [rank, heard] : heard_) heard.last = now;
    receive();
    if (!verdict_.empty()) return options_.on_silence(verdict_, /*own=*/false);
    std::string verdict = find_gone();
    if (verdict.empty()) verdict = find_left();
    // Between beats nothing more is to do, unless this rank announces its end or has found the cause.
    if (!lower(news_) && verdict.empty() && now < next) continue;
    next = now + kBeat;
    if (verdict.empty()) verdict = find_closed();
    const std::vector<int> lost = silent();
    if (verdict.empty() && !lost.empty()) verdict = describe_silence(heard_, lost, options_.limit, host_);
    if (options_.rank != 0 || !verdict.empty())
      for (const auto& [rank, address] : addresses_) send_to(address, verdict);
    if (!verdict.empty()) return options_.on_silence(verdict, /*own=*/true);
  }
}

/// Returns an empty text until the settling time is over.
///
/// A rank that fails tells the others, and then ends. A killed rank tells nothing, but its peers fail and tell, so
/// after the first announcement the ranks that neither announce their end nor send heartbeats are the cause.
std::string Heartbeats::find_gone() {
  const auto leaves = [](const auto& heard) { return heard.second.leaves; };
  const auto now = Clock::now();
  if (!settled_ && (leaves_ || std::ranges::any_of(heard_, leaves))) settled_ = now + options_.settling;
  if (!settled_ || now < *settled_) return "";
  settled_ = now + kBeat;  // next check
  const std::vector<int> gone = silent_for(options_.settling * 4 / 5);
  return gone.empty() ? "" : describe_gone(heard_, gone);
}

/// Returns an empty text unless another rank has ended long ago, and this one waits for it.
std::string Heartbeats::find_left() const {
  if (leaves_) return "";
  std::vector<int> left;
  for (const auto& [rank, heard] : heard_)
    if (heard.leaves && Clock::now() - heard.last > options_.farewell) left.push_back(rank);
  return left.empty() ? "" : describe_left(heard_, left, options_.farewell);
}

/// Returns an empty text unless this rank has not noticed for long that it has lost a connection.
std::string Heartbeats::find_closed() {
  if (leaves_ || !options_.has_lost_connection || !options_.has_lost_connection()) {
    closed_.reset();
    return "";
  }
  if (!closed_) closed_ = Clock::now();
  if (Clock::now() - *closed_ <= options_.limit) return "";
  leaves_ = true;  // So that rank 0 does not take this rank for the cause
  return fmt::format("rank {} on host {} has lost a connection, and still waited for it {:g} s later", options_.rank,
                     host_, std::chrono::duration<double>(options_.limit).count());
}

// Includes ranks silent for 80 % of the limit, since a dead host's ranks were last heard at different times.
std::vector<int> Heartbeats::silent() const {
  return silent_for(options_.limit).empty() ? std::vector<int>() : silent_for(options_.limit * 4 / 5);
}

std::vector<int> Heartbeats::silent_for(std::chrono::milliseconds time) const {
  const auto now = Clock::now();
  std::vector<int> ranks;
  for (const auto& [rank, heard] : heard_)
    if (!heard.leaves && now - heard.last > time) ranks.push_back(rank);
  return ranks;
}

void Heartbeats::send_to(const SocketAddress& to, const std::string& verdict) {
  const Json words = Json::array({options_.rank, ++sent_, host_, verdict, leaves_.load()});
  const std::string text = json_text(words);
  const std::string datagram = std::string(bytes_of(prove(options_.secret, text))) + text;
  // A datagram that cannot be sent is like one that is lost on the way: the next one follows soon.
  ::sendto(socket_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT, to.get(), to.size);
}

void Heartbeats::receive() {
  std::array<char, kMaxBytes> buffer{};
  while (true) {
    SocketAddress from;
    from.size = sizeof from.storage;
    const ssize_t size = ::recvfrom(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT,
                                    reinterpret_cast<sockaddr*>(&from.storage), &from.size);
    if (size < 0 && errno != EINTR && errno != ECONNREFUSED) return;  // ECONNREFUSED answers an earlier datagram
    if (size > 0) take({buffer.data(), static_cast<std::size_t>(size)}, from);
  }
}

/// Drops datagrams without the job's secret, of unexpected form, or older than the last one: UDP may reorder them.
void Heartbeats::take(std::string_view datagram, const SocketAddress& from) {
  const auto words = check_hmac(options_.secret, datagram);
  if (!words) return;
  try {
    const Json json = read_json(*words);
    if (!json.at(0).is_number_unsigned() || !json.at(1).is_number_unsigned()) return;
    const int rank = json.at(0).get<int>();
    // A new entry has the count 0, below that of any heartbeat.
    PeerHeartbeat& heard = heard_[rank];
    const auto count = json.at(1).get<std::uint64_t>();
    if (count <= heard.count) return;
    heard = {
        .host = json.at(2).get<std::string>(), .last = Clock::now(), .count = count, .leaves = json.at(4).get<bool>()};
    if (options_.rank == 0) {
      // The source of the datagram, not an address in it, is how this rank is reached through NAT or several
      // interfaces.
      addresses_[rank] = from;
      send_to(from, "");
    } else if (rank == 0) {
      verdict_ = json.at(3).get<std::string>();
    }
  } catch (const Json::exception&) {
  }
}

}  // namespace chimera
