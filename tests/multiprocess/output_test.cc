// Readers of a run's output that are slow, stopped or gone, and full files: the run continues, or ends cleanly.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <future>

#include "support/pipe.h"
#include "training.h"

namespace chimera::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Both ends of a stream that a program can use as stdout and stderr.
struct Stream {
  FileDescriptor reader;
  FileDescriptor program;
};

Stream stream_of(Pipe pipe) { return {.reader = std::move(pipe.read), .program = std::move(pipe.write)}; }

/// Like a pager that shows its first page: it has filled its buffer and reads no more.
Stream paused_reader() {
  Pipe pipe = make_pipe();
  fill(pipe);
  return stream_of(std::move(pipe));
}

/// Like `head -1` after its line.
Stream reader_that_has_gone() {
  Stream stream = stream_of(make_pipe());
  stream.reader = FileDescriptor();
  return stream;
}

/// A terminal after Ctrl-S.
Stream stopped_terminal() {
  FileDescriptor master(check_system(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), "open a terminal"));
  check_system(::grantpt(master.get()), "open a terminal");
  check_system(::unlockpt(master.get()), "open a terminal");
  FileDescriptor slave(check_system(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC), "open a terminal"));
  check_system(::tcflow(slave.get(), TCOOFF), "stop a terminal");
  return {std::move(master), std::move(slave)};
}

/// A process that was started with stdout and stderr closed (`>&- 2>&-`).
Stream none() { return {}; }

struct Reader {
  std::string name;
  Stream (*stream)();
  Words flags = {};
};

Words short_training(const Scratch& scratch) {
  return small_training(scratch) + "--model gpt2-tiny --stages 2 --steps 4";
}

class TrainingReaderTest : public ::testing::TestWithParam<Reader> {};

TEST_P(TrainingReaderTest, RunEndsWithAnyReader) {
  const Scratch scratch;
  const Stream stream = GetParam().stream();
  const int descriptor = stream.program.get();
  succeeded(ProgramRun(short_training(scratch) + GetParam().flags + "--hang-seconds 3",
                       {.messages = descriptor, .output = descriptor})
                .wait());
  EXPECT_EQ(read_metrics(scratch.path("metrics.jsonl")).size(), 4U);
}

INSTANTIATE_TEST_SUITE_P(
    , TrainingReaderTest,
    ::testing::Values(Reader{"PausedReader", paused_reader}, Reader{"ReaderThatHasGone", reader_that_has_gone},
                      Reader{"StoppedTerminal", stopped_terminal}, Reader{"None", none},
                      Reader{"PausedReaderOfThreads", paused_reader, "--transport threads"},
                      Reader{"ReaderOfThreadsThatHasGone", reader_that_has_gone, "--transport threads"}),
    [](const auto& reader) { return reader.param.name; });

/// The steps of a run, read as they arrive, through a named pipe.
class MetricsPipe {
 public:
  explicit MetricsPipe(const std::string& path) {
    check_system(::mkfifo(path.c_str(), 0600), "make a pipe");
    // also opened for writing, so that there is no end of file before the first step
    reader_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  void await_step() {
    for (char c = 0; c != '\n';) check_system(static_cast<int>(::read(reader_.get(), &c, 1)), "read a pipe");
  }

 private:
  FileDescriptor reader_;
};

TEST(TrainingOutputTest, APipeInTheFileSystemHasAllLinesOfMetrics) {
  const Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  check_system(::mkfifo(path.c_str(), 0600), "make a pipe");
  auto lines = std::async(std::launch::async, [&] { return read_file(path); });  // until the writer closes it
  succeeded(ProgramRun(short_training(scratch), {.ranks = 2}).wait());
  EXPECT_THAT(lines_of(lines.get()), SizeIs(4));
}

TEST(TrainingOutputTest, SignalsEndARunWhoseReaderHasPaused) {
  for (const Words flags : {"", "--transport threads"}) {
    const Scratch scratch;
    MetricsPipe metrics(scratch.path("metrics.jsonl"));
    const Stream stream = paused_reader();
    ProgramRun run(short_training(scratch) + flags + "--steps 100000", {.messages = stream.program.get()});
    metrics.await_step();
    run.send(run.process(), SIGTERM);
    const ProgramResult result = run.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_EQ(result.orphans, 0);
  }
}

TEST(TrainingOutputTest, ARankThatDiesEndsTheRunWhoseReaderHasPaused) {
  const Scratch scratch;
  const Stream stream = paused_reader();
  const ProgramResult result =
      ProgramRun(short_training(scratch),
                 {.environment = {"CHIMERA_FAULT=kill@backward:1:3"}, .ranks = 2, .messages = stream.program.get()})
          .wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.orphans, 0);
}

TEST(TrainingOutputTest, ProgressOnATerminalHasTheTimeOfDay) {
  const Scratch scratch;
  std::array<int, 2> ends{};
  const winsize size{.ws_row = 24, .ws_col = 140, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&ends[0], &ends[1], nullptr, nullptr, &size), 0);
  Stream terminal{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  ProgramRun(small_training(scratch) + "--model gpt2-tiny --schedule none --steps 2",
             {.environment = {"TERM=xterm"}, .messages = terminal.program.get()})
      .wait();
  terminal.program = FileDescriptor();
  std::string shown;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = ::read(terminal.reader.get(), buffer.data(), buffer.size())) > 0;)
    shown.append(buffer.data(), static_cast<std::size_t>(count));
  EXPECT_THAT(shown, ::testing::ContainsRegex("ETA 0 s  [0-9][0-9]:[0-9][0-9]:[0-9][0-9]"));
}

TEST(TrainingOutputTest, FullDiskIsReportedButDelaysNoStep) {
  const Scratch scratch;
  const auto trained =
      run_program(small_training(scratch) + "--model gpt2-tiny --stages 2 --steps 3 --metrics /dev/full");
  EXPECT_EQ(trained.exit_code, 1) << "lines are missing";
  EXPECT_THAT(trained.messages, HasSubstr("step 3/3"));
  EXPECT_THAT(complaints(trained), ElementsAre("chimera: --metrics /dev/full: No space left on device; training "
                                               "continues, and writes the missing lines when it can",
                                               "chimera: rank 0 failed at step 3: --metrics /dev/full: its last lines "
                                               "are missing: No space left on device"));
  const FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const auto output = ProgramRun(short_training(scratch), {.output = full.get()}).wait();
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_THAT(output.messages, HasSubstr("chimera: standard output cannot be written: No space left on device\n"));
}

}  // namespace
}  // namespace chimera::testing
