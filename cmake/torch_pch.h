#pragma once
// The one precompiled header of all LibTorch targets.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/variable.h>
#ifdef __clang__  // GCC instantiates in each file what a precompiled header has of templates
#include <CLI/CLI.hpp>
#endif
