// torch._assert_async: reports a 0 to the host, which raises at its next synchronising call.
#include "common/common.h"

__kernel void assert_nonzero(BUF(x), BUF(err), int code) {
  if (*PTR(x, const uchar) == 0) netcl_report(PTR(err, int), code, 0, 0);
}
