#include "transport/gloo/breakable_store.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace chimera {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1};

class BreakableStore final : public c10d::Store {
 public:
  BreakableStore(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<ConnectionBreaker> breaker)
      : Store(store->getTimeout()), store_(std::move(store)), breaker_(std::move(breaker)) {}

  c10::intrusive_ptr<Store> clone() override { return c10::make_intrusive<BreakableStore>(store_->clone(), breaker_); }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override { store_->set(key, value); }
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    return store_->compareSet(key, expected, desired);
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    wait({key});
    return store_->get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  std::int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!store_->check(keys)) {
      if (breaker_->broken()) throw PeerLostError("another rank was lost before all had come");
      if (std::chrono::steady_clock::now() > end) throw TransportError("timeout: a rank has not come");
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<ConnectionBreaker> breaker_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> breakable_store(c10::intrusive_ptr<c10d::Store> store,
                                                std::shared_ptr<ConnectionBreaker> breaker) {
  return c10::make_intrusive<BreakableStore>(std::move(store), std::move(breaker));
}

}  // namespace chimera
