// Fused optimizers: one pass over parameters, gradients and states.
// -D: IO (storage tag of parameters and gradients), RT (that of the states), those of multi_tensor.h.
// If found_inf is given and not 0, nothing is changed. If grad_scale is given, the gradients are divided by it and
// stored.
#include "common/multi_tensor.h"
#include "args/optimizers.h"

#define FUSED_PARAMS BUF(lr_tensor), BUF(grad_scale), BUF(found_inf)
#define SKIP_STEP (found_inf_buf && *PTR(found_inf, const float) != 0.0f)
#define LEARNING_RATE (lr_tensor_buf ? (ST) * PTR(lr_tensor, const float) : h.lr)
#define GRAD_SCALE (grad_scale_buf ? (ST) * PTR(grad_scale, const float) : (ST)1)

// Reads the gradient that the optimizer uses.
#define READ_GRADIENT(V, i)                    \
  VTYPE(ACC, V) g = LOAD(IO, ACC, V, grad, i); \
  if (grad_scale_buf) {                        \
    g /= scale;                                \
    STORE(IO, ACC, V, grad, i, g);             \
  }                                            \
  if (h.maximize != 0) g = -g;

// 1 - beta^step, which is accurate even if beta^step is close to 1; log_beta is computed in float64.
static inline ST bias_correction(ST log_beta, ST step) { return -expm1(log_beta * step); }

// Columns: parameter, gradient, exp_avg, exp_avg_sq, step and, for amsgrad, max_exp_avg_sq.
#define AMSGRAD (COLUMNS > 5)
__kernel void adam(MT_PARAMS, const AdamParams h, FUSED_PARAMS) {
  if (SKIP_STEP) return;
  MT_CHUNK
  __global STORAGE(IO)* param = MT_PTR(0, IO);
  __global STORAGE(IO)* grad = MT_PTR(1, IO);
  __global STORAGE(RT)* exp_avg = MT_PTR(2, RT);
  __global STORAGE(RT)* exp_avg_sq = MT_PTR(3, RT);
  __global STORAGE(RT)* max_exp_avg_sq = MT_PTR(AMSGRAD ? 5 : 3, RT);
  const ST step = (ST)*MT_PTR(4, f32);
  const ST scale = GRAD_SCALE, lr = LEARNING_RATE;
  const ST step_size = lr / bias_correction(h.log_beta1, step);
  const ST root = sqrt(bias_correction(h.log_beta2, step));
#define TAKE_MOST(V, i)                                             \
  {                                                                 \
    const VTYPE(ACC, V) most = LOAD(RT, ACC, V, max_exp_avg_sq, i); \
    v = (isnan(most) | (most > v)) ? most : v;                      \
    STORE(RT, ACC, V, max_exp_avg_sq, i, v);                        \
  }
#define ADAM_AT(V, i)                                  \
  {                                                    \
    READ_GRADIENT(V, i)                                \
    VTYPE(ACC, V) p = LOAD(IO, ACC, V, param, i);      \
    if (h.weight_decay != 0) {                         \
      if (h.decoupled != 0)                            \
        p -= lr * h.weight_decay * p;                  \
      else                                             \
        g += h.weight_decay * p;                       \
    }                                                  \
    VTYPE(ACC, V) m = LOAD(RT, ACC, V, exp_avg, i);    \
    VTYPE(ACC, V) v = LOAD(RT, ACC, V, exp_avg_sq, i); \
    m = h.beta1 * m + h.one_minus_beta1 * g;           \
    v = h.beta2 * v + h.one_minus_beta2 * g * g;       \
    STORE(RT, ACC, V, exp_avg, i, m);                  \
    STORE(RT, ACC, V, exp_avg_sq, i, v);               \
    if (AMSGRAD) TAKE_MOST(V, i)                       \
    p -= step_size * m / (sqrt(v) / root + h.eps);     \
    STORE(IO, ACC, V, param, i, p);                    \
  }
  MT_FOR_EACH(ADAM_AT)
}

// Columns: parameter, gradient and, with momentum, its buffer.
#define MOMENTUM (COLUMNS > 2)
__kernel void sgd(MT_PARAMS, const SgdParams h, FUSED_PARAMS) {
  MT_CHUNK
  __global STORAGE(RT)* buffer = MT_PTR(MOMENTUM ? 2 : 1, RT);
  if (SKIP_STEP) {
    // In the first step, the buffer is uninitialised. Clear it, since PyTorch does not repeat a first step that was
    // skipped.
#define CLEAR_AT(V, i) STORE(RT, ACC, V, buffer, i, (VTYPE(ACC, V))(0));
    if (MOMENTUM && h.first_step != 0) MT_FOR_EACH(CLEAR_AT)
    return;
  }
#define SGD_MOMENTUM(V, i)                                                                           \
  {                                                                                                  \
    VTYPE(ACC, V) b = g;                                                                             \
    if (h.first_step == 0) b = h.momentum * LOAD(RT, ACC, V, buffer, i) + h.one_minus_dampening * g; \
    STORE(RT, ACC, V, buffer, i, b);                                                                 \
    g = h.nesterov != 0 ? g + h.momentum * b : b;                                                    \
  }
  __global STORAGE(IO)* param = MT_PTR(0, IO);
  __global STORAGE(IO)* grad = MT_PTR(1, IO);
  const ST scale = GRAD_SCALE, lr = LEARNING_RATE;
#define SGD_AT(V, i)                                  \
  {                                                   \
    READ_GRADIENT(V, i)                               \
    VTYPE(ACC, V) p = LOAD(IO, ACC, V, param, i);     \
    if (h.weight_decay != 0) g += h.weight_decay * p; \
    if (MOMENTUM) SGD_MOMENTUM(V, i)                  \
    p -= lr * g;                                      \
    STORE(IO, ACC, V, param, i, p);                   \
  }
  MT_FOR_EACH(SGD_AT)
}

// Columns: parameter, gradient, sum of squares, step.
__kernel void adagrad(MT_PARAMS, const AdagradParams h, FUSED_PARAMS) {
  if (SKIP_STEP) return;
  MT_CHUNK
  __global STORAGE(IO)* param = MT_PTR(0, IO);
  __global STORAGE(IO)* grad = MT_PTR(1, IO);
  __global STORAGE(RT)* sum = MT_PTR(2, RT);
  const ST step = (ST)*MT_PTR(3, f32);
  const ST scale = GRAD_SCALE;
  const ST lr = LEARNING_RATE / (1 + (step - 1) * h.lr_decay);
#define ADAGRAD_AT(V, i)                                      \
  {                                                           \
    READ_GRADIENT(V, i)                                       \
    VTYPE(ACC, V) p = LOAD(IO, ACC, V, param, i);             \
    if (h.weight_decay != 0) g += h.weight_decay * p;         \
    const VTYPE(ACC, V) v = LOAD(RT, ACC, V, sum, i) + g * g; \
    STORE(RT, ACC, V, sum, i, v);                             \
    p -= lr * g / (sqrt(v) + h.eps);                          \
    STORE(IO, ACC, V, param, i, p);                           \
  }
  MT_FOR_EACH(ADAGRAD_AT)
}
