package ring

import "strconv"

// Opcode is the operation of a send WQE, byte 3 of its control segment
// (MLX5_OPCODE_*), and byte 56 of its CQE.
type Opcode uint8

// The opcodes that have names. Only NOP, SEND, SEND_IMM and TSO are in the
// profile; the others are what a foreign driver might write, and are refused.
const (
	OpNOP       Opcode = 0x00 // MLX5_OPCODE_NOP
	OpSendInval Opcode = 0x01 // MLX5_OPCODE_SEND_INVAL
	OpWrite     Opcode = 0x08 // MLX5_OPCODE_RDMA_WRITE
	OpWriteImm  Opcode = 0x09 // MLX5_OPCODE_RDMA_WRITE_IMM
	OpSend      Opcode = 0x0a // MLX5_OPCODE_SEND
	OpSendImm   Opcode = 0x0b // MLX5_OPCODE_SEND_IMM
	OpTSO       Opcode = 0x0e // MLX5_OPCODE_TSO
	OpRead      Opcode = 0x10 // MLX5_OPCODE_RDMA_READ
	OpCmpSwap   Opcode = 0x11 // MLX5_OPCODE_ATOMIC_CS
	OpFetchAdd  Opcode = 0x12 // MLX5_OPCODE_ATOMIC_FA
	OpSetPSV    Opcode = 0x20 // MLX5_OPCODE_SET_PSV
	OpUMR       Opcode = 0x25 // MLX5_OPCODE_UMR
)

// String gives the opcode's name in the C header, without its prefix.
func (o Opcode) String() string {
	switch o {
	case OpNOP:
		return "NOP"
	case OpSendInval:
		return "SEND_INVAL"
	case OpWrite:
		return "RDMA_WRITE"
	case OpWriteImm:
		return "RDMA_WRITE_IMM"
	case OpSend:
		return "SEND"
	case OpSendImm:
		return "SEND_IMM"
	case OpTSO:
		return "TSO"
	case OpRead:
		return "RDMA_READ"
	case OpCmpSwap:
		return "ATOMIC_CS"
	case OpFetchAdd:
		return "ATOMIC_FA"
	case OpSetPSV:
		return "SET_PSV"
	case OpUMR:
		return "UMR"
	}
	return "opcode 0x" + strconv.FormatUint(uint64(o), 16)
}

// CQEOpcode is the kind of a completion, bits 7:4 of a CQE's last byte.
type CQEOpcode uint8

// The kinds of completion (MLX5_CQE_*).
const (
	CQEReq       CQEOpcode = 0  // MLX5_CQE_REQ: a send is done
	CQEWriteImm  CQEOpcode = 1  // MLX5_CQE_RESP_WR_IMM
	CQERecv      CQEOpcode = 2  // MLX5_CQE_RESP_SEND
	CQERecvImm   CQEOpcode = 3  // MLX5_CQE_RESP_SEND_IMM
	CQERecvInval CQEOpcode = 4  // MLX5_CQE_RESP_SEND_INV
	CQEResize    CQEOpcode = 5  // MLX5_CQE_RESIZE_CQ
	CQENoPacket  CQEOpcode = 6  // MLX5_CQE_NO_PACKET
	CQESigErr    CQEOpcode = 12 // MLX5_CQE_SIG_ERR
	CQEReqErr    CQEOpcode = 13 // MLX5_CQE_REQ_ERR
	CQERecvErr   CQEOpcode = 14 // MLX5_CQE_RESP_ERR
	CQEInvalid   CQEOpcode = 15 // MLX5_CQE_INVALID: never written by a device
)

// String gives a short name for the kind.
func (o CQEOpcode) String() string {
	switch o {
	case CQEReq:
		return "REQ"
	case CQEWriteImm:
		return "RESP_WR_IMM"
	case CQERecv:
		return "RESP_SEND"
	case CQERecvImm:
		return "RESP_SEND_IMM"
	case CQERecvInval:
		return "RESP_SEND_INV"
	case CQEResize:
		return "RESIZE_CQ"
	case CQENoPacket:
		return "NO_PACKET"
	case CQESigErr:
		return "SIG_ERR"
	case CQEReqErr:
		return "REQ_ERR"
	case CQERecvErr:
		return "RESP_ERR"
	case CQEInvalid:
		return "INVALID"
	}
	return "cqe opcode " + strconv.Itoa(int(o))
}

// Syndrome says what went wrong, byte 55 of an error CQE (MLX5_CQE_SYNDROME_*).
type Syndrome uint8

// The syndromes. SynNone is not a hardware value; it marks a WQE without error.
const (
	SynNone         Syndrome = 0x00
	SynLocalLength  Syndrome = 0x01 // MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR
	SynLocalQPOp    Syndrome = 0x02 // MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR
	SynLocalProt    Syndrome = 0x04 // MLX5_CQE_SYNDROME_LOCAL_PROT_ERR
	SynFlushed      Syndrome = 0x05 // MLX5_CQE_SYNDROME_WR_FLUSH_ERR
	SynWindowBind   Syndrome = 0x06 // MLX5_CQE_SYNDROME_MW_BIND_ERR
	SynBadResponse  Syndrome = 0x10 // MLX5_CQE_SYNDROME_BAD_RESP_ERR
	SynLocalAccess  Syndrome = 0x11 // MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR
	SynRemoteInval  Syndrome = 0x12 // MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR
	SynRemoteAccess Syndrome = 0x13 // MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR
	SynRemoteOp     Syndrome = 0x14 // MLX5_CQE_SYNDROME_REMOTE_OP_ERR
	SynRetries      Syndrome = 0x15 // MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR
	SynRNRRetries   Syndrome = 0x16 // MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR
	SynAborted      Syndrome = 0x22 // MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR
)

// Status gives the number of the ibv_wc_status that libmlx5 makes of the
// syndrome; 21, the general error, for all it does not know.
func (s Syndrome) Status() uint8 {
	switch s {
	case SynLocalLength, SynLocalQPOp, SynLocalProt, SynFlushed, SynWindowBind:
		return uint8(s)
	case SynBadResponse, SynLocalAccess, SynRemoteInval, SynRemoteAccess,
		SynRemoteOp, SynRetries, SynRNRRetries:
		return uint8(s) - 0x10 + 7
	case SynAborted:
		return 16
	}
	return 21
}

// String gives a few words for the syndrome.
func (s Syndrome) String() string {
	switch s {
	case SynNone:
		return "none"
	case SynLocalLength:
		return "local length"
	case SynLocalQPOp:
		return "local QP operation"
	case SynLocalProt:
		return "local protection"
	case SynFlushed:
		return "flushed"
	case SynWindowBind:
		return "memory window bind"
	case SynBadResponse:
		return "bad response"
	case SynLocalAccess:
		return "local access"
	case SynRemoteInval:
		return "remote invalid request"
	case SynRemoteAccess:
		return "remote access"
	case SynRemoteOp:
		return "remote operation"
	case SynRetries:
		return "transport retries exceeded"
	case SynRNRRetries:
		return "RNR retries exceeded"
	case SynAborted:
		return "aborted"
	}
	return "syndrome 0x" + strconv.FormatUint(uint64(s), 16)
}
