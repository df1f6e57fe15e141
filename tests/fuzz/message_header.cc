// Fuzzes the header of a message between processes.

#include "schedule/message_header.h"

#include <algorithm>
#include <cctype>

#include "fuzz/fuzzer.h"

namespace chimera::testing {
namespace {

void exercise_header(std::string_view bytes) {
  MessageHeader header = {};
  std::copy_n(bytes.begin(), std::min(bytes.size(), header.size()), header.begin());
  const auto tag = tag_of(header);
  if (!tag) return;
  require(to_header(*tag) == header, "a header says nothing but its tag");
  require(tag_of(to_header(*tag)) == *tag, "a tag reads back");
  require(tag_of(to_header(*tag))->checksum == tag->checksum, "so does its checksum");
  const std::string text = to_text(*tag);
  require(text.size() < 100, "a tag is short");
  require(std::ranges::all_of(text, [](unsigned char c) { return std::isprint(c) != 0; }), "a tag is one line");
}

}  // namespace

const Fuzzer kMessageHeader("message_header", exercise_header);

}  // namespace chimera::testing
