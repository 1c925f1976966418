// torch.profiler: reports the activities of netcl devices to Kineto, which calls this through PyTorch's registry for
// PrivateUse1 profilers. With a torch without that registry (2.11), Kineto is asked directly.
#if __has_include(<kineto/libkineto.h>)

// These match the flags of PyTorch's own build, which an extension does not see.
#define USE_KINETO
#define KINETO_NAMESPACE libkineto
#define FMT_HEADER_ONLY  // torch does not export fmt

#include <kineto/libkineto.h>
#include <kineto/output_base.h>
#include <unistd.h>
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#endif

#include <limits>
#include <set>
#include <utility>

#include "runtime/Device.h"
#include "runtime/Profiler.h"

namespace netcl {

namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

ActivityType type_of(Activity::Kind kind) {
  return kind == Activity::kCopy ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(bool host_side) : host_side_(host_side) { status_ = libkineto::TraceStatus::READY; }
  ~Session() override { stop(); }

  void start() override {
    take_activities();  // drops those of an abandoned session
    start_recording();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    if (status_ != libkineto::TraceStatus::RECORDING) return;
    stop_recording();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, std::numeric_limits<int64_t>::max());
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t from,
                    int64_t to) override {
    if (!buffer_) buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(from, to, "__netcl_profiler__");
    int32_t id = 0;
    for (const Activity& a : take_activities()) {
      if (a.enqueue_begin < from || a.enqueue_begin > to) continue;
      id++;
      const auto* parent = a.correlation ? linked(static_cast<int32_t>(a.correlation)) : nullptr;
      if (host_side_) {
        auto& call = add(ActivityType::PRIVATEUSE1_RUNTIME,
                         a.kind == Activity::kKernel ? "clEnqueueNDRangeKernel" : "clEnqueueCopy", a.enqueue_begin,
                         a.enqueue_end, id, parent, true);
        call.device = getpid();
        call.resource = call.threadId = a.thread;
        call.log(logger);
      }
      // Element-wise kernels all have one of a few names, so the name includes the operator.
      auto& work = add(type_of(a.kind), a.kind == Activity::kKernel ? a.name + " (" + a.op + ")" : a.name, a.begin,
                       a.end, id, parent, false);
      work.device = a.device;
      work.resource = static_cast<int32_t>(a.stream);
      work.addMetadata("stream", a.stream);
      if (!a.op.empty()) work.addMetadataQuoted("op", a.op);
      if (a.bytes) work.addMetadata("bytes", a.bytes);
      used_.emplace(a.device, a.stream);
      work.log(logger);
    }
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    if (used_.empty()) return nullptr;
    const auto index = used_.begin()->first;
    return std::unique_ptr<libkineto::DeviceInfo>(new libkineto::DeviceInfo{
        index, libkineto::kExceedMaxPid + index, "netcl:" + std::to_string(index), device(index).info().name});
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> all;
    for (const auto& [index, stream] : used_) {
      all.push_back({stream, stream, index, "stream " + std::to_string(stream)});
    }
    return all;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { push_correlation(id); }
  void popCorrelationId() override { pop_correlation(); }

 private:
  GenericTraceActivity& add(ActivityType type, const std::string& name, int64_t begin, int64_t end, int32_t id,
                            const libkineto::ITraceActivity* parent, bool flow_start) {
    buffer_->emplace_activity(buffer_->span, type, name);
    GenericTraceActivity& a = *buffer_->activities.back();
    a.startTime = begin;
    a.endTime = end;
    a.id = id;
    a.linked = parent;
    a.flow.id = static_cast<uint32_t>(id);
    a.flow.type = libkineto::kLinkAsyncCpuGpu;
    a.flow.start = flow_start;
    return a;
  }

  bool host_side_;
  std::set<std::pair<c10::DeviceIndex, c10::StreamId>> used_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config&) override {
    if (!wanted.count(ActivityType::CONCURRENT_KERNEL)) return nullptr;
    return std::make_unique<Session>(wanted.count(ActivityType::PRIVATEUSE1_RUNTIME) > 0);
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config& config) override {
    return configure(wanted, config);
  }

 private:
  std::string name_ = "netcl";
  std::set<ActivityType> types_{ActivityType::GPU_MEMCPY, ActivityType::CONCURRENT_KERNEL,
                                ActivityType::PRIVATEUSE1_RUNTIME};
};

#ifdef REGISTER_PRIVATEUSE1_PROFILER
REGISTER_PRIVATEUSE1_PROFILER(Profiler);
#else
const bool registered = [] {
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
  return true;
}();
#endif

}  // namespace

}  // namespace netcl

#endif
