#include "transport/gloo/connect_log.h"

#include <iostream>
#include <streambuf>
#include <string_view>

namespace chimera {
namespace {

/// Passes on what it is given, except Gloo's line. Gloo writes a line at once, and std::cerr holds nothing back.
class WithoutConnectLog : public std::streambuf {
 public:
  explicit WithoutConnectLog(std::streambuf* to) : to_(to) {}

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::string_view words(text, static_cast<std::size_t>(size));
    const bool dropped = words.starts_with('[') && words.find("/gloo/transport/") != std::string_view::npos &&
                         words.find("failed to connect") != std::string_view::npos;
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
