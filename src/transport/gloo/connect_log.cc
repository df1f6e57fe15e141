#include "transport/gloo/connect_log.h"

#include <iostream>
#include <streambuf>
#include <string_view>

namespace chimera {
namespace {

/// "[/path/debug_logger.cc:9] ERROR failed to connect, ..." and "[E1123 ... ProcessGroupGloo.cpp:67] Gloo
/// connectFullMesh failed with ...".
bool tells_of_connecting(std::string_view line) {
  const auto says = [line](std::string_view words) { return line.find(words) != std::string_view::npos; };
  return line.starts_with('[') && says("/gloo/") && (says("failed to connect") || says("connectFullMesh failed"));
}

/// Passes on what it is given, except those lines: each is written at once, and std::cerr holds nothing back.
class WithoutConnectLog : public std::streambuf {
 public:
  explicit WithoutConnectLog(std::streambuf* to) : to_(to) {}

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const bool dropped = tells_of_connecting({text, static_cast<std::size_t>(size)});
    return dropped ? size : to_->sputn(text, size);
  }
  int_type overflow(int_type character) override { return to_->sputc(traits_type::to_char_type(character)); }
  int sync() override { return to_->pubsync(); }

 private:
  std::streambuf* to_;
};

}  // namespace

void drop_connect_log() {
  // Never destroyed: threads of Gloo may write until the process ends.
  [[maybe_unused]] static const std::streambuf* const replaced =
      std::cerr.rdbuf(new WithoutConnectLog(std::cerr.rdbuf()));
}

}  // namespace chimera
