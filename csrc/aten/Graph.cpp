// torch.accelerator.Graph: commands are kept with their arguments (runtime/Deferred.h), and replay() submits them in
// one call. OpenCL 1.2 has no graphs of its own, so a replay costs a driver's call per command, and none of PyTorch's
// work.
#if __has_include(<ATen/core/GraphImplInterface.h>)

#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>

#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "runtime/CachingAllocator.h"
#include "runtime/Capture.h"
#include "runtime/Shutdown.h"

namespace netcl {

namespace {

// The numbers of the captures' memory, by the ids of PyTorch's pools; graphs share it if they name the same pool.
class GraphPools {
 public:
  struct Pool {
    int number = 2, graphs = 0;  // 0 and 1: see Recording.cpp and MultiTensor.cpp
  };
  static GraphPools& instance() {
    static auto* pools = new GraphPools();
    return *pools;
  }
  // Adds a graph to the pool `id`, or to a new one if that is {0, 0}.
  int join(at::MempoolId_t& id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (id == at::MempoolId_t{0, 0}) id = {kOwn, ++last_};
    auto [found, is_new] = pools_.try_emplace(id);
    if (is_new) {
      while (used_.count(found->second.number)) found->second.number++;
      used_.insert(found->second.number);
    }
    found->second.graphs++;
    return found->second.number;
  }
  // True if this was the pool's last graph.
  bool leave(const at::MempoolId_t& id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = pools_.find(id);
    if (found == pools_.end() || --found->second.graphs > 0) return false;
    used_.erase(found->second.number);
    pools_.erase(found);
    return true;
  }

 private:
  static constexpr uint64_t kOwn = 1;  // PyTorch's own ids of pools begin with 0
  std::mutex mutex_;
  std::map<at::MempoolId_t, Pool> pools_;
  std::set<int> used_;
  uint64_t last_ = 0;
};

}  // namespace

class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& /*args*/) {}
  ~Graph() override {
    if (shutting_down()) return;
    try {
      Graph::reset();
    } catch (const std::exception& e) {
      TORCH_WARN("netcl: a graph could not be released: ", e.what());
    }
  }

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode /*mode*/) override {
    TORCH_CHECK(state_ == State::kEmpty, "This graph holds a capture; call reset() before the next one.");
    device_ = device(current_device()).index();
    pool_ = pool;
    queue_ = &capture_queue(device_, GraphPools::instance().join(pool_));
    state_ = State::kCapturing;
    try {
      begin_capture(*queue_, capture_);
    } catch (...) {
      leave_pool();
      state_ = State::kEmpty;
      throw;
    }
  }

  void capture_end() override {
    TORCH_CHECK(state_ == State::kCapturing, "capture_end() was called without capture_begin().");
    netcl::end_capture(*queue_);
    state_ = State::kCaptured;
    restore_generators(capture_);
    if (capture_.commands.empty()) TORCH_WARN("The graph is empty: nothing ran on the device during its capture.");
  }

  void instantiate() override { check_captured("instantiate"); }

  void replay() override {
    check_captured("replay");
    Queue& queue = current_queue(device_);
    TORCH_CHECK(!queue.deferred().capture(), "A graph cannot be replayed during a capture.");
    used_.insert(&queue);
    netcl::replay(capture_, queue);
  }

  void reset() override {
    if (state_ == State::kCapturing) netcl::end_capture(*queue_);
    for (Queue* queue : used_) queue->finish();  // commands may still read what the graph keeps
    const bool held = state_ != State::kEmpty;
    forget();
    if (held) leave_pool();
    state_ = State::kEmpty;
  }

  at::MempoolId_t pool() const override {
    TORCH_CHECK(state_ != State::kEmpty, "pool() was called before capture_begin().");
    return pool_;
  }
  void enable_debug_mode() override {}

  void debug_dump(const std::string& path) override {
    check_captured("debug_dump");
    std::ofstream file(path);
    for (const auto& command : capture_.commands) file << command->text() << '\n';
    TORCH_CHECK(file.good(), "netcl: the graph could not be written to ", path);
  }

 private:
  enum class State { kEmpty, kCapturing, kCaptured };
  void check_captured(const char* call) const {
    TORCH_CHECK(state_ == State::kCaptured, call, "() was called without a captured graph.");
  }
  void forget() {
    capture_ = {};
    used_.clear();
  }
  void leave_pool() {
    if (GraphPools::instance().leave(pool_)) release_stream(device_, queue_->stream().id());
  }

  State state_ = State::kEmpty;
  c10::DeviceIndex device_ = 0;
  at::MempoolId_t pool_{0, 0};
  Queue* queue_ = nullptr;  // of the capture
  Capture capture_;
  std::set<Queue*> used_;  // by replays
};

}  // namespace netcl

namespace at {
REGISTER_GRAPH_IMPL(NETCL, ::netcl::Graph)
}  // namespace at

#endif
