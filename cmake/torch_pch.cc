// Carries the precompiled header (torch_pch.h) that every LibTorch target reuses.
