#pragma once
// The precompiled header of all LibTorch targets.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#ifdef __clang__  // GCC instantiates the templates of a precompiled header in each file
#include "room_pch.h"
#endif
