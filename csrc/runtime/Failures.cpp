#include "runtime/Failures.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace netcl {

namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  }
}

struct Failure {
  std::exception_ptr error;
  std::string text;
  std::vector<std::pair<std::string, int>> lost;  // operators, and how many of their commands were not enqueued
};

struct Failures {
  std::mutex mutex;
  std::vector<Failure> list;
  std::atomic<bool> any{false};

  // The entry of this error; the caller holds the mutex.
  Failure& entry(const std::exception_ptr& error) {
    any.store(true);
    std::string text = text_of(error);
    for (Failure& known : list) {
      if (known.text == text) return known;
    }
    return list.emplace_back(Failure{error, std::move(text), {}});
  }
  std::vector<Failure> take() {
    const std::lock_guard<std::mutex> lock(mutex);
    any.store(false);
    return std::exchange(list, {});
  }
};
std::array<Failures, 64>& all_failures() {
  static auto* all = new std::array<Failures, 64>();
  return *all;
}
Failures& failures_of(c10::DeviceIndex device) { return all_failures().at(device); }

std::string lost_by(const Failure& failure) {
  std::string names;
  for (const auto& [op, times] : failure.lost) {
    names += (names.empty() ? "" : ", ") + (op.empty() ? std::string("a copy") : op);
    if (times > 1) names += " (" + std::to_string(times) + " commands)";
  }
  if (names.empty()) return names;
  return "Not run, although the calls had returned: " + names + ". What they were to write holds no values.";
}

// The first error as what it is; its text also has the others.
[[noreturn]] void raise(std::vector<Failure> failures, const std::string& reported) {
  try {
    std::rethrow_exception(failures.front().error);
  } catch (c10::Error& e) {
    std::string more = lost_by(failures.front());
    for (size_t i = 1; i < failures.size(); i++) more += "\n" + failures[i].text + "\n" + lost_by(failures[i]);
    if (!reported.empty()) more += "\n" + reported;
    if (!more.empty()) e.add_context(more);
    throw;
  }
}

}  // namespace

void note_failure(c10::DeviceIndex device, const std::exception_ptr& error, const std::string& op) {
  Failures& failures = failures_of(device);
  const std::lock_guard<std::mutex> lock(failures.mutex);
  auto& lost = failures.entry(error).lost;
  auto known = std::find_if(lost.begin(), lost.end(), [&](const auto& entry) { return entry.first == op; });
  if (known == lost.end()) known = lost.insert(known, {op, 0});
  known->second++;
}

void note_failure(c10::DeviceIndex device, const std::exception_ptr& error) {
  Failures& failures = failures_of(device);
  const std::lock_guard<std::mutex> lock(failures.mutex);
  failures.entry(error);
}

void raise_failures(c10::DeviceIndex device, c10::function_ref<void()> check) {
  Failures& failures = failures_of(device);
  if (__builtin_expect(!failures.any.load(std::memory_order_acquire), 1)) return check();
  std::vector<Failure> found = failures.take();
  if (found.empty()) return check();
  std::string reported;
  try {
    check();
  } catch (const std::exception& e) {  // perhaps of a kernel that has read what was not written
    reported = text_of(std::current_exception());
  }
  raise(std::move(found), reported);
}

void warn_of_failures() noexcept {
  for (Failures& failures : all_failures()) {
    for (const Failure& failure : failures.take()) {
      try {
        TORCH_WARN(failure.text, '\n', lost_by(failure));
      } catch (...) {  // warnings may be errors
      }
    }
  }
}

}  // namespace netcl
