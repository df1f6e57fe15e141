// Carries a precompiled header: room_pch.h, alone for rooms without LibTorch, with CLI11 for programs that parse flags.
