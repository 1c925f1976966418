#include "runtime/HugePages.h"

#include <sys/mman.h>

#include <cstdint>
#include <memory>

#include "runtime/OpenCL.h"

namespace netcl {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

struct Pages {
  Pages(void* at, size_t size) : start(at), bytes(size) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(start, bytes); }
  void* start;
  size_t bytes;
};

// Aligned to kHugePage; null if the system refuses.
std::unique_ptr<Pages> map_pages(size_t bytes) {
  const size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* p = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(p);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(p) % kHugePage) % kHugePage;
  if (before) munmap(begin, before);
  munmap(begin + before + size, kHugePage - before);
  madvise(begin + before, size, MADV_HUGEPAGE);  // if the system refuses, the memory has small pages
  return std::make_unique<Pages>(begin + before, size);
}

void CL_CALLBACK free_pages(cl_mem /*mem*/, void* pages) { delete static_cast<Pages*>(pages); }

}  // namespace

cl_mem create_buffer(const Device& device, size_t bytes, cl_int* error) {
  if ((device.info().type & CL_DEVICE_TYPE_CPU) != 0 && bytes >= kHugePage) {
    if (auto pages = map_pages(bytes)) {
      cl_mem mem =
          cl().clCreateBuffer(device.context(), CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, pages->start, error);
      if (*error != CL_SUCCESS) return nullptr;
      if (cl().clSetMemObjectDestructorCallback(mem, &free_pages, pages.get()) == CL_SUCCESS) {
        static_cast<void>(pages.release());
        return mem;
      }
      cl().clReleaseMemObject(mem);  // nothing would tell when to free the pages; use the driver's memory instead
    }
  }
  cl_mem mem = cl().clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, error);
  return *error == CL_SUCCESS ? mem : nullptr;
}

}  // namespace netcl
