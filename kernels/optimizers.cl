// Fused optimizers: one pass over parameters, gradients and states.
// -D: P (dtype of parameters and gradients), S (dtype of the states), those of multi_tensor.h, AMSGRAD.
// If found_inf is given and not 0, nothing is changed. If grad_scale is given, the gradients are divided by it and
// stored.
#include "common/multi_tensor.h"
#include "args/optimizers.h"
#ifndef P
#define P f32
#endif

#define FUSED_PARAMS BUF(lr_tensor), BUF(grad_scale), BUF(found_inf)
#define SKIP_STEP (found_inf_buf && *PTR(found_inf, const float) != 0.0f)
#define LEARNING_RATE (lr_tensor_buf ? (ST) * PTR(lr_tensor, const float) : h.lr)
#define GRAD_SCALE (grad_scale_buf ? (ST) * PTR(grad_scale, const float) : (ST)1)

// Reads the gradient that the optimizer uses.
#define READ_GRADIENT(V, i)                   \
  VTYPE(ACC, V) g = LOAD(P, ACC, V, grad, i); \
  if (grad_scale_buf) {                       \
    g /= scale;                               \
    STORE(P, ACC, V, grad, i, g);             \
  }                                           \
  if (h.maximize != 0) g = -g;

// 1 - beta^step, which is accurate even if beta^step is close to 1; log_beta is computed in float64.
static inline ST bias_correction(ST log_beta, ST step) { return -expm1(log_beta * step); }

// Columns: parameter, gradient, exp_avg, exp_avg_sq, step and, with AMSGRAD, max_exp_avg_sq.
__kernel void adam(MT_PARAMS, const AdamParams h, FUSED_PARAMS) {
  if (SKIP_STEP) return;
  MT_CHUNK
  __global STORAGE(P)* param = MT_PTR(0, P);
  __global STORAGE(P)* grad = MT_PTR(1, P);
  __global STORAGE(S)* exp_avg = MT_PTR(2, S);
  __global STORAGE(S)* exp_avg_sq = MT_PTR(3, S);
#ifdef AMSGRAD
  __global STORAGE(S)* max_exp_avg_sq = MT_PTR(5, S);
#endif
  const ST step = (ST)*MT_PTR(4, f32);
  const ST scale = GRAD_SCALE, lr = LEARNING_RATE;
  const ST step_size = lr / bias_correction(h.log_beta1, step);
  const ST root = sqrt(bias_correction(h.log_beta2, step));
#ifdef AMSGRAD
#define ADAM_SECOND(V, i)                                    \
  VTYPE(ACC, V) second = LOAD(S, ACC, V, max_exp_avg_sq, i); \
  second = (isnan(second) | (second > v)) ? second : v;      \
  STORE(S, ACC, V, max_exp_avg_sq, i, second);
#else
#define ADAM_SECOND(V, i) const VTYPE(ACC, V) second = v;
#endif
#define ADAM_AT(V, i)                                   \
  {                                                     \
    READ_GRADIENT(V, i)                                 \
    VTYPE(ACC, V) p = LOAD(P, ACC, V, param, i);        \
    if (h.weight_decay != 0) {                          \
      if (h.decoupled != 0)                             \
        p -= lr * h.weight_decay * p;                   \
      else                                              \
        g += h.weight_decay * p;                        \
    }                                                   \
    VTYPE(ACC, V) m = LOAD(S, ACC, V, exp_avg, i);      \
    VTYPE(ACC, V) v = LOAD(S, ACC, V, exp_avg_sq, i);   \
    m = h.beta1 * m + h.one_minus_beta1 * g;            \
    v = h.beta2 * v + h.one_minus_beta2 * g * g;        \
    STORE(S, ACC, V, exp_avg, i, m);                    \
    STORE(S, ACC, V, exp_avg_sq, i, v);                 \
    ADAM_SECOND(V, i)                                   \
    p -= step_size * m / (sqrt(second) / root + h.eps); \
    STORE(P, ACC, V, param, i, p);                      \
  }
  MT_FOR_EACH(ADAM_AT)
}

// Columns: parameter, gradient and, with MOMENTUM, its buffer.
__kernel void sgd(MT_PARAMS, const SgdParams h, FUSED_PARAMS) {
  MT_CHUNK
#ifdef MOMENTUM
  __global STORAGE(S)* buffer = MT_PTR(2, S);
  if (SKIP_STEP) {
    // In the first step, the buffer is uninitialised. Clear it, since PyTorch does not repeat a first step that was
    // skipped.
#define CLEAR_AT(V, i) STORE(S, ACC, V, buffer, i, (VTYPE(ACC, V))(0));
    if (h.first_step != 0) MT_FOR_EACH(CLEAR_AT)
    return;
  }
#define SGD_MOMENTUM(V, i)                                                                          \
  {                                                                                                 \
    VTYPE(ACC, V) b = g;                                                                            \
    if (h.first_step == 0) b = h.momentum * LOAD(S, ACC, V, buffer, i) + h.one_minus_dampening * g; \
    STORE(S, ACC, V, buffer, i, b);                                                                 \
    g = h.nesterov != 0 ? g + h.momentum * b : b;                                                   \
  }
#else
  if (SKIP_STEP) return;
#define SGD_MOMENTUM(V, i)
#endif
  __global STORAGE(P)* param = MT_PTR(0, P);
  __global STORAGE(P)* grad = MT_PTR(1, P);
  const ST scale = GRAD_SCALE, lr = LEARNING_RATE;
#define SGD_AT(V, i)                                  \
  {                                                   \
    READ_GRADIENT(V, i)                               \
    VTYPE(ACC, V) p = LOAD(P, ACC, V, param, i);      \
    if (h.weight_decay != 0) g += h.weight_decay * p; \
    SGD_MOMENTUM(V, i)                                \
    p -= lr * g;                                      \
    STORE(P, ACC, V, param, i, p);                    \
  }
  MT_FOR_EACH(SGD_AT)
}

// Columns: parameter, gradient, sum of squares, step.
__kernel void adagrad(MT_PARAMS, const AdagradParams h, FUSED_PARAMS) {
  if (SKIP_STEP) return;
  MT_CHUNK
  __global STORAGE(P)* param = MT_PTR(0, P);
  __global STORAGE(P)* grad = MT_PTR(1, P);
  __global STORAGE(S)* sum = MT_PTR(2, S);
  const ST step = (ST)*MT_PTR(3, f32);
  const ST scale = GRAD_SCALE;
  const ST lr = LEARNING_RATE / (1 + (step - 1) * h.lr_decay);
#define ADAGRAD_AT(V, i)                                     \
  {                                                          \
    READ_GRADIENT(V, i)                                      \
    VTYPE(ACC, V) p = LOAD(P, ACC, V, param, i);             \
    if (h.weight_decay != 0) g += h.weight_decay * p;        \
    const VTYPE(ACC, V) v = LOAD(S, ACC, V, sum, i) + g * g; \
    STORE(S, ACC, V, sum, i, v);                             \
    p -= lr * g / (sqrt(v) + h.eps);                         \
    STORE(P, ACC, V, param, i, p);                           \
  }
  MT_FOR_EACH(ADAGRAD_AT)
}
