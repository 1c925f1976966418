// Hyperparameters of the fused optimizers (csrc/aten/Optimizers.cpp, kernels/optimizers.cl), in the compute type.
#ifndef NETCL_ARGS_OPTIMIZERS_H
#define NETCL_ARGS_OPTIMIZERS_H
#include "args/args.h"
BEGIN_ARGS

TEMPLATE_STRUCT(class real, AdamParams) {
  real lr, beta1, beta2, one_minus_beta1, one_minus_beta2, log_beta1, log_beta2, weight_decay, eps;
  real maximize, decoupled;
};

TEMPLATE_STRUCT(class real, SgdParams) {
  real lr, weight_decay, momentum, one_minus_dampening;
  real nesterov, maximize, first_step;
};

TEMPLATE_STRUCT(class real, AdagradParams) {
  real lr, lr_decay, weight_decay, eps;
  real maximize;
};

END_ARGS
#endif
