// Package mlx5hdr shows what the C header infiniband/mlx5dv.h says: the bytes
// that its inline setters write, and the offsets and constants of its structs.
// It exists for one test of package ring; cgo cannot stand in a test file.
//
// It is empty without the build tag mlx5hdr, which needs a C compiler and the
// header (libibverbs-dev).
package mlx5hdr
