//go:build !mlx5hdr

// Package mlx5hdr is empty without the build tag mlx5hdr, which needs a C
// compiler and the header infiniband/mlx5dv.h (libibverbs-dev).
package mlx5hdr
