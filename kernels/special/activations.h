// Smooth activations and their slopes, for vectors VT of the compute type, in forms that neither cancel nor overflow.
#define SIGMOID(x) (1 / (1 + exp(-(x))))

// gelu(tanh): (1 + tanh(y)) / 2 is the sigmoid of 2y, which does not cancel for negative y.
#define GELU_INNER(x) ((VT)(M_SQRT2 * M_2_SQRTPI) * ((x) + (VT)0.044715 * (x) * (x) * (x)))
#define GELU_TANH(x) ((x) * SIGMOID(GELU_INNER(x)))
static inline VT gelu_tanh_slope(VT x) {
  const VT y = GELU_INNER(x), s = SIGMOID(y), p = s * SIGMOID(-y);
  const VT inner_slope = (VT)(M_SQRT2 * M_2_SQRTPI) * (1 + (VT)(3 * 0.044715) * x * x);
  return s + x * (p == (VT)0 ? (VT)0 : p * inner_slope);  // far out, the slope of y overflows
}

// mish: with e = exp(x) and n = e^2 + 2e, tanh(log(1 + e)) is n / (n + 2). It is 1 long before e^2 overflows, at 40.
#define MISH(x) ((x) * mish_tanh(x))
static inline VT mish_tanh(VT x) {
  const VT e = exp(x > (VT)40 ? (VT)40 : x), n = e * (e + 2);
  return n / (n + 2);
}
static inline VT mish_slope(VT x) {
  const VT e = exp(x > (VT)40 ? (VT)40 : x), n = e * (e + 2), m = n + 2;
  return n / m + x * (x > (VT)40 ? (VT)0 : e / (1 + e) * (4 * ((n + 1) / m) / m));
}
