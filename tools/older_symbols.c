// Symbols that glibc 2.32 and 2.33 added and that have no older version: see older_symbols.py. They stay inside the
// library that is linked with them. (Before 2.33, stat and fstat were inline functions of the headers.)
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct stat;

#define HIDDEN __attribute__((visibility("hidden")))

// Read by libstdc++'s shared_ptr: whether it may count without atomic instructions.
HIDDEN char __libc_single_threaded = 0;

HIDDEN int fstat(int fd, struct stat* result) { return (int)syscall(SYS_fstat, fd, result); }

HIDDEN int stat(const char* path, struct stat* result) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, result, 0);
}
