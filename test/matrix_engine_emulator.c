// Executes the instructions of kernels/gemm/gemm_engine.h where the CPU lacks them: a handler of SIGILL decodes the few
// forms that are used, works on registers of its own (one set a thread) and goes on behind the instruction. After the
// pseudo code of the Intel 64 and IA-32 Software Developer's Manual, volume 2. For tests: a step costs a microsecond.
// Loaded before all else (LD_PRELOAD). What it does not know ends the process, as it would without.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static __thread uint8_t tile[8][16][64];
static __thread int tile_rows[8], tile_bytes[8], configured;
static __thread uint32_t zmm[32][16];
static int mistaken;  // EMULATOR_MISTAKE in the environment: a product is off by one
static unsigned long long executed[8];  // by kind, see below
enum { CONFIG, ZERO, LOAD, STORE, PRODUCT, MOVE, BROADCAST, PAIRS };

static void count(int kind) { __atomic_fetch_add(&executed[kind], 1, __ATOMIC_RELAXED); }

static const int kGreg[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static float as_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
static uint32_t as_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
// Denormals count as zeros, and so do results: both instructions ignore MXCSR.
static float flushed(float f) {
  const uint32_t u = as_bits(f);
  return u & 0x7f800000u ? f : as_float(u & 0x80000000u);
}
static float wide(uint16_t h) { return flushed(as_float((uint32_t)h << 16)); }
static float add(float sum, uint16_t x, uint16_t y) { return flushed(__builtin_fmaf(wide(x), wide(y), sum)); }
// One lane of vdpbf16ps: the later level first.
static uint32_t add_pair(uint32_t sum, uint32_t x, uint32_t y) {
  float s = flushed(as_float(sum));
  s = add(s, x >> 16, y >> 16);
  return as_bits(add(s, (uint16_t)x, (uint16_t)y));
}

typedef struct {
  const uint8_t* at;  // the byte after ModRM, SIB and displacement
  int is_register, reg, rm;  // 3 bits each
  uint64_t address;
  uint64_t index;  // the register in SIB that tile loads take as the stride, scaled
} operand_t;

// `b` and `x`: the fourth bits of base and index; `scale8`: what a displacement of one byte counts (EVEX).
static operand_t operand(const uint8_t* p, const greg_t* r, int b, int x, int scale8) {
  operand_t o = {0};
  const int mod = *p >> 6;
  o.reg = (*p >> 3) & 7;
  o.rm = *p++ & 7;
  if (mod == 3) {
    o.is_register = 1;
    o.at = p;
    return o;
  }
  uint64_t base = 0;
  int number = o.rm | b << 3, absolute = 0;
  if (o.rm == 4) {
    const int sib = *p++, index = ((sib >> 3) & 7) | x << 3;
    number = (sib & 7) | b << 3;
    if (index != 4) o.index = (uint64_t)r[kGreg[index]] << (sib >> 6);
    absolute = mod == 0 && (sib & 7) == 5;
  } else if (mod == 0 && o.rm == 5) {
    absolute = 2;  // relative to the next instruction
  }
  int32_t far = 0;
  if (mod == 1) far = (int8_t)*p++ * scale8;
  if (mod == 2 || absolute) {
    memcpy(&far, p, 4);
    p += 4;
  }
  if (absolute == 2) base = (uint64_t)p;
  if (!absolute) base = (uint64_t)r[kGreg[number]];
  o.address = base + (int64_t)far;
  o.at = p;
  return o;
}

static int tile_instruction(const uint8_t* p, greg_t* r) {
  const int map = p[1] & 31, x = !(p[1] & 0x40), b = !(p[1] & 0x20), pp = p[2] & 3, v = (~p[2] >> 3) & 15, op = p[3];
  if (map != 2 || (p[2] & 0x84)) return 0;  // 0F38, W0, 128 bits
  const operand_t o = operand(p + 4, r, b, x, 1);
  if (op == 0x49 && pp == 0 && !o.is_register && o.reg == 0) {  // ldtilecfg
    const uint8_t* config = (const uint8_t*)o.address;
    if (config[0] != 1) return 0;
    for (int t = 0; t < 8; t++) {
      tile_bytes[t] = config[16 + 2 * t] | config[17 + 2 * t] << 8;
      tile_rows[t] = config[48 + t];
      if (tile_bytes[t] > 64 || tile_rows[t] > 16) return 0;
    }
    memset(tile, 0, sizeof tile);
    configured = 1;
    count(CONFIG);
  } else if (op == 0x49 && pp == 0 && o.is_register) {  // tilerelease
    configured = 0;
  } else if (!configured) {
    return 0;
  } else if (op == 0x49 && pp == 3 && o.is_register) {  // tilezero
    memset(tile[o.reg], 0, sizeof tile[0]);
    count(ZERO);
  } else if (op == 0x4b && pp == 3 && !o.is_register) {  // tileloadd
    memset(tile[o.reg], 0, sizeof tile[0]);
    for (int i = 0; i < tile_rows[o.reg]; i++)
      memcpy(tile[o.reg][i], (const void*)(o.address + i * o.index), tile_bytes[o.reg]);
    count(LOAD);
  } else if (op == 0x4b && pp == 2 && !o.is_register) {  // tilestored
    for (int i = 0; i < tile_rows[o.reg]; i++)
      memcpy((void*)(o.address + i * o.index), tile[o.reg][i], tile_bytes[o.reg]);
    count(STORE);
  } else if (op == 0x5c && pp == 2 && o.is_register) {  // tdpbf16ps reg, rm, v
    // Sums of the even levels and of the odd ones, then both together.
    for (int m = 0; m < tile_rows[o.reg]; m++)
      for (int n = 0; n < tile_bytes[o.reg] / 4; n++) {
        float even = 0, odd = 0, sum;
        for (int k = 0; k < tile_bytes[o.rm] / 4; k++) {
          uint16_t xs[2], ys[2];
          memcpy(xs, &tile[o.rm][m][4 * k], 4);
          memcpy(ys, &tile[v][k][4 * n], 4);
          even = add(even, xs[0], ys[0]);
          odd = add(odd, xs[1], ys[1]);
        }
        memcpy(&sum, &tile[o.reg][m][4 * n], 4);
        sum = flushed(flushed(sum) + flushed(even + odd)) + mistaken;
        memcpy(&tile[o.reg][m][4 * n], &sum, 4);
      }
    count(PRODUCT);
  } else {
    return 0;
  }
  r[REG_RIP] = (greg_t)o.at;
  return 1;
}

static int vector_instruction(const uint8_t* p, greg_t* r) {
  const int map = p[1] & 7, pp = p[2] & 3, op = p[4], length = (p[3] >> 5) & 3;
  const int x = !(p[1] & 0x40), b = !(p[1] & 0x20), high = !(p[1] & 0x80) << 3 | !(p[1] & 0x10) << 4;
  if (length != 2 || (p[3] & 0x97) || (p[2] & 0x80)) return 0;  // 512 bits, no mask, no broadcast, W0
  const int v = ((~p[2] >> 3) & 15) | !(p[3] & 0x08) << 4;
  const operand_t o = operand(p + 5, r, b, x, map == 2 && op == 0x58 ? 4 : 64);
  const uint64_t address = o.address + o.index;
  uint32_t* to = zmm[o.reg | high];
  if (map == 1 && pp == 0 && op == 0x10 && !o.is_register) {  // vmovups zmm, m512
    memcpy(to, (const void*)address, 64);
    count(MOVE);
  } else if (map == 1 && pp == 0 && op == 0x11 && !o.is_register) {  // vmovups m512, zmm
    memcpy((void*)address, to, 64);
    count(MOVE);
  } else if (map == 2 && pp == 1 && op == 0x58 && !o.is_register) {  // vpbroadcastd zmm, m32
    uint32_t one;
    memcpy(&one, (const void*)address, 4);
    for (int i = 0; i < 16; i++) to[i] = one;
    count(BROADCAST);
  } else if (map == 2 && pp == 2 && op == 0x52 && o.is_register) {  // vdpbf16ps reg, v, rm
    const uint32_t* y = zmm[o.rm | b << 3 | x << 4];
    for (int i = 0; i < 16; i++) to[i] = add_pair(to[i], zmm[v][i], y[i]) ^ (uint32_t)mistaken;
    count(PAIRS);
  } else {
    return 0;
  }
  r[REG_RIP] = (greg_t)o.at;
  return 1;
}

static int set_action(int, const struct sigaction*, struct sigaction*);
static void handle(int number, siginfo_t* info, void* context) {
  (void)info;
  greg_t* r = ((ucontext_t*)context)->uc_mcontext.gregs;
  const uint8_t* p = (const uint8_t*)r[REG_RIP];
  if (p[0] == 0xc4 && tile_instruction(p, r)) return;
  if (p[0] == 0x62 && vector_instruction(p, r)) return;
  struct sigaction usual;  // the instruction faults again
  memset(&usual, 0, sizeof usual);
  usual.sa_handler = SIG_DFL;
  set_action(number, &usual, 0);
}

typedef int (*sigaction_t)(int, const struct sigaction*, struct sigaction*);
static int set_action(int number, const struct sigaction* action, struct sigaction* old) {
  static sigaction_t next;
  if (!next) next = (sigaction_t)dlsym(RTLD_NEXT, "sigaction");
  return next(number, action, old);
}
// LLVM, which the runtimes compile with, would take the signal for a crash and delete the files it is writing.
int sigaction(int number, const struct sigaction* action, struct sigaction* old) {
  return set_action(number, number == SIGILL ? 0 : action, old);
}

__attribute__((constructor)) static void emulate(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  set_action(SIGILL, &action, 0);
  mistaken = getenv("EMULATOR_MISTAKE") != 0;
}

// How many instructions of a kind were executed here: CONFIG 0, ZERO 1, LOAD 2, STORE 3, PRODUCT 4, MOVE 5,
// BROADCAST 6, PAIRS 7.
unsigned long long executions(int kind) { return executed[kind]; }
