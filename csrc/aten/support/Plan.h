// A family of operators with several ways to compute a call lists them in a table, the best first:
//   constexpr Way<Call> kWays[] = {{"rows", take<&plan_rows, &run_rows>},
//                                  {"windows", take<&plan_windows, &run_windows>}};
// plan_rows(call) returns an optional plan, with all that it found; the first plan is run, by run_rows(call, plan). A
// way may serve devices of one class only: {"rows", take<…>, Serves::kCpu}. NETCL_LOG=plan prints `call.op` and the
// name of the way.
#pragma once

#include <c10/util/Exception.h>

#include "runtime/Device.h"
#include "runtime/Log.h"

namespace netcl {

enum class Serves { kAll, kCpu, kGpu };

template <class Call>
struct Way {
  const char* name;
  bool (*take)(const char* name, const Call& call);
  Serves devices = Serves::kAll;
};

template <auto plan_of, auto run, class Call>
bool take(const char* name, const Call& call) {
  const auto plan = plan_of(call);
  if (!plan) return false;
  if (logs(LogTopic::kPlan)) log("plan ", call.op, ": ", name);
  run(call, *plan);
  return true;
}

template <class Call, size_t count>
void run_first(const Way<Call> (&ways)[count], const Device& device, const Call& call) {
  const Serves other = device.is_cpu() ? Serves::kGpu : Serves::kCpu;
  for (const Way<Call>& way : ways) {
    if (way.devices != other && way.take(way.name, call)) return;
  }
  TORCH_INTERNAL_ASSERT(false, call.op, ": no way serves this call");
}

}  // namespace netcl
