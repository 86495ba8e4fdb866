package liveframes

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// testRun is the part of union bpf_attr for BPF_PROG_TEST_RUN (linux/bpf.h, Linux 5.18).
type testRun struct {
	progFD, retval           uint32
	sizeIn, sizeOut          uint32
	dataIn, dataOut          unsafe.Pointer
	repeat, durationNS       uint32
	ctxSizeIn, ctxSizeOut    uint32
	ctxIn, ctxOut            unsafe.Pointer
	flags, cpu, batchSize, _ uint32
}

const liveFrames = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES

var _ [80]byte = [unsafe.Sizeof(testRun{})]byte{} // 76 bytes in the kernel, and what it checks to be zero

// prepare fills in what stays. The request points into its own Source, which is on the heap and does not move.
func (s *Source) prepare() {
	s.request = testRun{
		progFD:    uint32(s.prog.FD()),
		sizeIn:    uint32(len(s.frame)),
		dataIn:    unsafe.Pointer(&s.frame[0]),
		ctxSizeIn: uint32(unsafe.Sizeof(s.ctx)),
		ctxIn:     unsafe.Pointer(&s.ctx[0]),
		flags:     liveFrames,
	}
}

// run is one system call. It is entered with syscall.Syscall, which tells the scheduler: a thread that the scheduler
// believes to be running Go code gets a signal every 10 ms to make it yield, and each one would end the call.
func (s *Source) run(repeat, batchSize uint32) error {
	s.request.repeat, s.request.batchSize = repeat, batchSize
	_, _, errno := syscall.Syscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN,
		uintptr(unsafe.Pointer(&s.request)), unsafe.Sizeof(s.request))
	runtime.KeepAlive(s)
	if errno != 0 {
		return errno
	}
	return nil
}
