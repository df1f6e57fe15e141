#include "core/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "core/file_descriptor.h"
#include "support/pipe.h"

namespace chimera {
namespace {

using std::chrono::milliseconds;
constexpr std::chrono::seconds kLong{20};

using testing::fill;
using testing::make_pipe;
using testing::Pipe;

std::string read_bytes(const Pipe& pipe, std::size_t count) {
  std::string text(count, '\0');
  for (std::size_t done = 0; done < count;) {
    const ssize_t size = ::read(pipe.read.get(), text.data() + done, count - done);
    if (size <= 0) return text.substr(0, done);
    done += static_cast<std::size_t>(size);
  }
  return text;
}

TEST(ConsoleTest, WritesInOrder) {
  const Pipe pipe = make_pipe();
  Console console(pipe.write.get());
  console.write("one ");
  console.write("two\n");
  EXPECT_TRUE(console.drain(kLong));
  EXPECT_EQ(read_bytes(pipe, 8), "one two\n");
}

TEST(ConsoleTest, WritersDoNotWaitForAStuckReader) {
  const Pipe pipe = make_pipe();
  const std::size_t full = fill(pipe);
  Console console(pipe.write.get());
  for (const char* word : {"a", "b", "c"}) console.write(word);
  EXPECT_FALSE(console.drain(milliseconds(1)));
  read_bytes(pipe, full);
  EXPECT_EQ(read_bytes(pipe, 3), "abc");
  EXPECT_TRUE(console.drain(kLong));
}

TEST(ConsoleTest, TheNextTextReplacesAPendingTransientText) {
  const Pipe pipe = make_pipe();
  const std::size_t full = fill(pipe);
  Console console(pipe.write.get());
  console.write("begin ");
  for (int i = 0; i < 1000; ++i) console.show("passing ");
  console.write("end");
  EXPECT_FALSE(console.drain(milliseconds(1)));
  read_bytes(pipe, full);
  EXPECT_EQ(read_bytes(pipe, 9), "begin end");
}

TEST(ConsoleTest, MemoryOfPendingTextIsBounded) {
  const Pipe pipe = make_pipe();
  const std::size_t full = fill(pipe);
  Console console(pipe.write.get());
  const std::string line(1000, '.');
  for (std::size_t i = 0; i < 3 * Console::kMaxWaiting / line.size(); ++i) console.write(line);
  console.write("last");
  read_bytes(pipe, full);
  const std::size_t kept = Console::kMaxWaiting / line.size() * line.size();
  std::string text = read_bytes(pipe, kept - line.size());  // and perhaps a line that was being written
  while (!text.ends_with("last")) text += read_bytes(pipe, 1);
  EXPECT_LE(text.size(), Console::kMaxWaiting + line.size());
}

TEST(ConsoleTest, AClosedReaderIsNotAFailure) {
  Pipe pipe = make_pipe();
  pipe.read = FileDescriptor();
  Console console(pipe.write.get());
  console.write("nobody reads this");
  console.write("nor this");
  EXPECT_TRUE(console.drain(kLong)) << "and no SIGPIPE has ended this process";
  EXPECT_EQ(console.error(), 0);
}

TEST(ConsoleTest, AFullDiskIsAFailure) {
  const FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Console console(full.get());
  console.write("there is no room for this");
  EXPECT_TRUE(console.drain(kLong));
  EXPECT_EQ(console.error(), ENOSPC);
}

}  // namespace
}  // namespace chimera
