#include "fuzz/fuzzer.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace chimera::testing {
namespace {

std::vector<Fuzzer>& registered() {
  static std::vector<Fuzzer> fuzzers;
  return fuzzers;
}

}  // namespace

Fuzzer::Fuzzer(std::string fuzzer_name, Exercise fuzzer_exercise)
    : name(std::move(fuzzer_name)), exercise(fuzzer_exercise) {
  registered().push_back(*this);
}

std::vector<Fuzzer> all_fuzzers() {
  std::vector<Fuzzer> fuzzers = registered();
  std::ranges::sort(fuzzers, {}, &Fuzzer::name);
  return fuzzers;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

void require_good_refusal(const ConfigError& refusal) {
  const std::string_view message = refusal.what();
  require(message.starts_with(kSource), "a refusal names the text");
  require(std::ranges::none_of(message, [](unsigned char c) { return std::iscntrl(c) != 0; }), "a refusal is one line");
  require(message.size() < 1000, "a refusal is short");
}

}  // namespace chimera::testing
