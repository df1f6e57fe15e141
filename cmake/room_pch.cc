// Carries the precompiled header (room_pch.h) that every room without LibTorch reuses.
