// Hyperparameters of the fused optimizers (csrc/aten/Optimizers.cpp, kernels/optimizers.cl), in the compute type.
#pragma once
#include "args/args.h"
BEGIN_ARGS

TEMPLATE_STRUCT(class ST, AdamParams) {
  ST lr, beta1, beta2, one_minus_beta1, one_minus_beta2, log_beta1, log_beta2, weight_decay, eps;
  ST maximize, decoupled;
};

TEMPLATE_STRUCT(class ST, SgdParams) {
  ST lr, weight_decay, momentum, one_minus_dampening;
  ST nesterov, maximize, first_step;
};

TEMPLATE_STRUCT(class ST, AdagradParams) {
  ST lr, lr_decay, weight_decay, eps;
  ST maximize;
};

END_ARGS
