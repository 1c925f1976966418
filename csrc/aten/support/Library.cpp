#include "aten/support/Library.h"

#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

namespace netcl {
namespace {

using Run = std::shared_ptr<void> (*)();

std::vector<Run>& registrations() {
  static auto* all = new std::vector<Run>();
  return *all;
}

// A kernel that does not have the type of its operator, for tests.
void fail_if_asked() {
  const char* fault = std::getenv("NETCL_TEST_FAULT");
  if (!fault || std::string_view(fault) != "signature") return;
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("relu", +[](const at::Tensor& x, int64_t) { return x; });
}

}  // namespace

Registration::Registration(Run run) { registrations().push_back(run); }

}  // namespace netcl

// Registers everything, or nothing; returns why it failed, or null. torch_netcl/_library.py calls it once.
extern "C" __attribute__((visibility("default"))) const char* netcl_register() {
  static std::string failure;
  auto* kept = new std::vector<std::shared_ptr<void>>();  // never destroyed: the dispatcher may be gone by then
  try {
    for (const netcl::Run run : netcl::registrations()) kept->push_back(run());
    netcl::fail_if_asked();
    return nullptr;
  } catch (const c10::Error& e) {
    failure = e.what_without_backtrace();
  } catch (const std::exception& e) {
    failure = e.what();
  }
  delete kept;
  return failure.c_str();
}
