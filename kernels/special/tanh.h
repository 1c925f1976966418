// TANH(x): tanh, which is 1 for large x. PoCL's ends at the last float before 1.
#if defined(POCL_DEVICE_ADDRESS_BITS)
#define DEFINE_TANH(T, V)                                                   \
  static inline T##V __attribute__((overloadable)) tanh_up_to_one(T##V x) { \
    return fabs(x) > (T##V)TANH_IS_ONE ? copysign((T##V)1, x) : tanh(x);    \
  }
#define TANH_IS_ONE 9.011f  // beyond it, 1 - tanh is less than half of the step below 1
DEFINE_TANH(float, )
DEFINE_TANH(float, 2)
DEFINE_TANH(float, 4)
DEFINE_TANH(float, 8)
DEFINE_TANH(float, 16)
#ifdef HAVE_FP64
#undef TANH_IS_ONE
#define TANH_IS_ONE 19.0616
DEFINE_TANH(double, )
DEFINE_TANH(double, 2)
DEFINE_TANH(double, 4)
DEFINE_TANH(double, 8)
DEFINE_TANH(double, 16)
#endif
#define TANH(x) tanh_up_to_one(x)
#else
#define TANH(x) tanh(x)
#endif
